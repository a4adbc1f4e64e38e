"""Why a device was chosen, layer by layer: one Explanation, and renderers for people and programs."""

from __future__ import annotations

from placer.decision import Advice
from placer.explanation.explanation import Explanation
from placer.explanation.parts import Bottleneck, DeviceRow, LayerRow, OpRow, SpanRow
from placer.explanation.rows import build

__all__ = ["Explanation", "Advice", "Bottleneck", "DeviceRow", "LayerRow", "OpRow", "SpanRow", "build"]
