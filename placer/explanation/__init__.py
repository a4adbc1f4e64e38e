"""Why a device was chosen, layer by layer: one Explanation, and its renderers for people and programs."""

from placer.decision import Advice
from placer.explanation.data import Bottleneck, LayerRow, Measured, OpRow, PartRow, SpanRow, Turn
from placer.explanation.explanation import Explanation
from placer.explanation.notebook import card, reason_card
from placer.explanation.page import axis_unit, check_packages, render_page, svg
from placer.explanation.sections import Section
from placer.explanation.sentences import (
    headings,
    headline,
    kind,
    kind_mark,
    legend,
    machine_parts,
    sureness,
    workload_line,
)
from placer.explanation.short import render_short, render_text
from placer.explanation.sweep import Sweep
from placer.explanation.text import load_rich, new_table, plain, render_sections, styled
from placer.explanation.turn import find_turn

__all__ = [
    "Advice",
    "Bottleneck",
    "Explanation",
    "LayerRow",
    "Measured",
    "OpRow",
    "PartRow",
    "Section",
    "SpanRow",
    "Sweep",
    "Turn",
    "axis_unit",
    "card",
    "check_packages",
    "find_turn",
    "headings",
    "headline",
    "kind",
    "kind_mark",
    "legend",
    "load_rich",
    "machine_parts",
    "new_table",
    "plain",
    "reason_card",
    "render_page",
    "render_sections",
    "render_short",
    "render_text",
    "styled",
    "sureness",
    "svg",
    "workload_line",
]
