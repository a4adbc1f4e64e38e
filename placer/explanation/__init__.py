"""Why a device was chosen, layer by layer: one Explanation, and renderers for people and programs."""

from __future__ import annotations

from placer.explanation.explanation import Bottleneck, DeviceRow, Explanation, LayerRow, OpRow
from placer.explanation.rows import build

__all__ = ["Explanation", "Bottleneck", "DeviceRow", "LayerRow", "OpRow", "build"]
