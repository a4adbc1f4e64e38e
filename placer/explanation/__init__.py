"""Why a device was chosen, layer by layer: one Explanation, and its renderers for people and programs."""

from placer.decision import Advice
from placer.explanation.accuracy import off_before_calibration
from placer.explanation.answer import advice_line, basis_line, bound_of, device_words, headline, spoken, why_line
from placer.explanation.data import Bottleneck, LayerRow, Measured, OpRow, PartRow, SpanRow, Turn
from placer.explanation.explanation import Explanation
from placer.explanation.notebook import card
from placer.explanation.page import check_packages, render_page
from placer.explanation.sweep import Sweep
from placer.explanation.turn import Turns, find_turn
from placer.explanation.words import headings, kind, kind_mark, legend, machine_line, sureness, workload_line

__all__ = [
    "Advice",
    "Bottleneck",
    "Explanation",
    "LayerRow",
    "Measured",
    "OpRow",
    "PartRow",
    "SpanRow",
    "Sweep",
    "Turn",
    "Turns",
    "advice_line",
    "basis_line",
    "bound_of",
    "card",
    "check_packages",
    "device_words",
    "find_turn",
    "headings",
    "headline",
    "kind",
    "kind_mark",
    "legend",
    "machine_line",
    "off_before_calibration",
    "render_page",
    "spoken",
    "sureness",
    "why_line",
    "workload_line",
]
