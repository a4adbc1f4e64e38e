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
    a step: launches, transfer, arithmetic, memory, waits or loader; None where that is not known. ``watts`` is the
    power of CPU and accelerator meanwhile, an estimate where the caller gave none, and ``dollars_per_hour`` the price
    that the caller gave; None where they are not known.
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
    watts: float | None = None
    dollars_per_hour: float | None = None

    @property
    def seconds(self) -> float:
        """What counts: of all steps where it is known how many there are, else of one."""
        return self.step_seconds if self.total_seconds is None else self.total_seconds

    @property
    def dollars(self) -> float | None:
        """Of what counts; None without a price."""
        return None if self.dollars_per_hour is None else self.dollars_per_hour * self.seconds / 3600.0

    @property
    def joules(self) -> float | None:
        """Of what counts, an estimate; None where it is not known."""
        return None if self.watts is None else self.watts * self.seconds

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


@dataclass(frozen=True)
class PartRow:
    """A part of a job: ``count`` of its steps are in one job, and ``devices`` says what one step takes on each.

    ``workload`` is what the step does.
    """

    name: str
    count: float
    devices: Mapping[str, DeviceRow]
    workload: Mapping[str, Any] = field(default_factory=dict)

    def seconds(self, device: str) -> float:
        """Of all its steps in one job."""
        return self.count * self.devices[device].step_seconds

    def to_dict(self) -> dict[str, Any]:
        devices = {name: row.to_dict() for name, row in self.devices.items()}
        return {"name": self.name, "count": self.count, "devices": devices, "workload": dict(self.workload)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PartRow:
        """The inverse of ``to_dict``. Raises KeyError or TypeError for anything else."""
        devices = {name: DeviceRow(**row) for name, row in values["devices"].items()}
        return cls(values["name"], values["count"], devices, dict(values["workload"]))


@dataclass(frozen=True)
class ApartRow:
    """The fastest way to run the parts of a job on several devices: one for each part, by name.

    ``chosen`` tells that it is the choice. Times are those of one job. ``exchange_seconds`` of ``step_seconds`` copy
    ``exchange_bytes`` between the devices: trained weights go to the device of each part that only uses them.
    """

    devices: Mapping[str, str]
    step_seconds: float
    low: float
    high: float
    one_time_seconds: float
    exchange_seconds: float
    exchange_bytes: int
    chosen: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "devices": dict(self.devices)}
