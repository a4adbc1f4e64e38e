"""The rows an Explanation is made of: plain data, each complete in itself. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DeviceRow:
    """One device: times in seconds, memory in bytes. ``low`` and ``high`` bound a 90 % interval of the step.

    ``available_memory_bytes`` is what the workload could have there, None where that is not known. ``provenance`` is
    what its numbers rest on: calibrated, published or data sheet. ``one_time`` are the parts of ``one_time_seconds``,
    which the first step takes on top: context, libraries, first_calls and weights. ``bounded_by`` is what takes most of
    a step: launches, transfer, arithmetic, memory or waits; None where that is not known.
    """

    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    total_seconds: float | None
    components: Mapping[str, float]
    peak_memory_bytes: int
    fits: bool
    coverage: float
    provenance: str = "calibrated"
    available_memory_bytes: int | None = None
    one_time: Mapping[str, float] = field(default_factory=dict)
    bounded_by: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "components": dict(self.components), "one_time": dict(self.one_time)}


@dataclass(frozen=True)
class LayerRow:
    """The ops issued by one layer itself (its sub-layers have their own rows) in one phase: seconds by device.

    ``guessed`` is the part of them that rests on prices that nobody measured.
    """

    name: str
    phase: str
    devices: Mapping[str, float]
    guessed: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "devices": dict(self.devices), "guessed": dict(self.guessed)}


@dataclass(frozen=True)
class OpRow:
    """All calls of one op. ``source`` is that of their weakest price (see ``pricing.prediction.Source``).

    ``guessed`` is the part of the seconds of each device whose price nobody measured: it is not calibrated, nor, on a
    device that was not calibrated, published.
    """

    op: str
    family: str
    count: int
    devices: Mapping[str, float]
    source: str
    guessed: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "devices": dict(self.devices), "guessed": dict(self.guessed)}


@dataclass(frozen=True)
class Bottleneck:
    """An op, with all its calls in one layer, that takes at least half of a phase on a device. Times in seconds."""

    device: str
    phase: str
    layer: str
    op: str
    seconds: float
    phase_seconds: float


@dataclass(frozen=True)
class SpanRow:
    """What ``lane`` (host or device) does for ``seconds`` from ``start`` on (seconds after the step began).

    ``phase`` is that of the ops, empty for a copy or a wait; ``label`` is their layer, or what is waited for.
    """

    lane: str
    label: str
    phase: str
    start: float
    seconds: float
