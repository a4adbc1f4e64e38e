"""Why a device was chosen, layer by layer: one Explanation, and its renderers for people and programs.

Renderers are loaded on first use: a decision that nobody prints does not pay for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from placer.decision import Advice
from placer.explanation.builder import build, device_row
from placer.explanation.explanation import Explanation
from placer.explanation.rows import ApartRow, Bottleneck, DeviceRow, LayerRow, OpRow, PartRow, SpanRow

__all__ = [
    "Explanation",
    "Sweep",
    "Advice",
    "ApartRow",
    "Bottleneck",
    "DeviceRow",
    "LayerRow",
    "OpRow",
    "PartRow",
    "SpanRow",
    "build",
    "device_row",
    "draw_svg",
    "headings",
    "kind_mark",
    "legend",
    "load_rich",
    "machine_parts",
    "marked",
    "new_table",
    "plain",
    "provenance_kind",
    "render_html",
    "render_sweep",
    "render_text",
    "page_template",
    "sureness",
    "workload_line",
]

if TYPE_CHECKING:
    from placer.explanation.charts import svg as draw_svg
    from placer.explanation.console import load_rich, plain
    from placer.explanation.html import render as render_html
    from placer.explanation.page import template as page_template
    from placer.explanation.provenance import headings, kind_mark, legend, marked
    from placer.explanation.provenance import kind as provenance_kind
    from placer.explanation.sweep import Sweep
    from placer.explanation.sweep_text import render as render_sweep
    from placer.explanation.tables import new_table
    from placer.explanation.text import render as render_text
    from placer.explanation.verdict import machine_parts, sureness, workload_line

#: Module and name behind each name that is loaded on first use.
_HOMES = {
    "Sweep": ("sweep", "Sweep"),
    "draw_svg": ("charts", "svg"),
    "headings": ("provenance", "headings"),
    "kind_mark": ("provenance", "kind_mark"),
    "legend": ("provenance", "legend"),
    "load_rich": ("console", "load_rich"),
    "machine_parts": ("verdict", "machine_parts"),
    "marked": ("provenance", "marked"),
    "new_table": ("tables", "new_table"),
    "page_template": ("page", "template"),
    "plain": ("console", "plain"),
    "provenance_kind": ("provenance", "kind"),
    "render_html": ("html", "render"),
    "render_sweep": ("sweep_text", "render"),
    "render_text": ("text", "render"),
    "sureness": ("verdict", "sureness"),
    "workload_line": ("verdict", "workload_line"),
}


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'placer.explanation' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(f"placer.explanation.{module}"), attribute)
