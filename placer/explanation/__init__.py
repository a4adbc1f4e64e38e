"""Why a device was chosen, layer by layer: one Explanation, and its renderers for people and programs.

Renderers are loaded on first use: a decision that nobody prints does not pay for them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from placer.decision import Advice
from placer.explanation.build import build, device_row, explain_table
from placer.explanation.data import Bottleneck, LayerRow, OpRow, PartRow, SpanRow
from placer.explanation.explanation import Explanation

#: Names that are loaded on first use, by the module that they are in.
_LAZY = {
    "console": ("load_rich", "new_table", "plain"),
    "page": ("Section", "render_page", "svg"),
    "sentences": (
        "headings", "kind", "kind_mark", "legend", "machine_parts", "marked", "sureness", "workload_line",
    ),
    "sweep": ("Sweep", "render_sweep"),
    "text": ("render_text",),
}  # fmt: skip

__all__ = [
    "Advice",
    "Bottleneck",
    "Explanation",
    "LayerRow",
    "OpRow",
    "PartRow",
    "Section",
    "SpanRow",
    "Sweep",
    "build",
    "device_row",
    "explain_table",
    "headings",
    "kind",
    "kind_mark",
    "legend",
    "load_rich",
    "machine_parts",
    "marked",
    "new_table",
    "plain",
    "render_page",
    "render_sweep",
    "render_text",
    "sureness",
    "svg",
    "workload_line",
]

if TYPE_CHECKING:
    from placer.explanation.console import load_rich, new_table, plain
    from placer.explanation.page import Section, render_page, svg
    from placer.explanation.sentences import (
        headings,
        kind,
        kind_mark,
        legend,
        machine_parts,
        marked,
        sureness,
        workload_line,
    )
    from placer.explanation.sweep import Sweep, render_sweep
    from placer.explanation.text import render_text


def __getattr__(name: str) -> Any:
    """Load a name on first use (PEP 562)."""
    module = next((module for module, names in _LAZY.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'placer.explanation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"placer.explanation.{module}"), name)
