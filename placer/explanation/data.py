"""The Explanation and the rows it is made of: plain data, complete in itself, to be stored and rendered later.

Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from placer.decision import Advice, Decision, RealSteps
from placer.errors import PlacerError
from placer.explanation.accuracy import UsualError
from placer.pricing import Cost

if TYPE_CHECKING:
    from typing_extensions import Self

#: History of the JSON format. Readers refuse another number.
#:
#: 1 (placer 0.1): workload, choice, confidence, reason, break_even_steps, devices, layers, ops; beside them threads,
#:   thread_counts, bottlenecks, speedup, notes, machine, bounds, advice and timeline, which a reader may ignore. Later:
#:   verdict, of each device one_time and bounded_by, and of a job parts. Then: objective, and of each device watts and
#:   dollars_per_hour. Then: of each device its name and its threads. Then: of each device sources
#:   and assumed. Then: turn, measured, limits and usual_errors. Then: left_out. Then: real.
SCHEMA = 1
#: Phases in the order of a step.
PHASES = ("forward", "loss", "backward", "optimizer")


@dataclass(frozen=True)
class LayerRow:
    """The ops issued by one layer itself (its sub-layers have their own rows) in one phase: seconds by device.

    ``guessed`` is the part of them whose prices nobody measured: neither calibrated nor published in that range.
    """

    name: str
    phase: str
    devices: Mapping[str, float]
    guessed: Mapping[str, float] = field(default_factory=dict)


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


@dataclass(frozen=True)
class Bottleneck:
    """An op, with all its calls in one layer, that takes at least half of a phase on a device."""

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
    devices: Mapping[str, Cost]
    workload: Mapping[str, Any] = field(default_factory=dict)

    def seconds(self, device: str) -> float:
        """Of all its steps in one job."""
        return self.count * self.devices[device].step_seconds


@dataclass(frozen=True)
class Turn:
    """Where the choice turns between CPU and accelerator as the batch grows.

    ``batch`` is about the size at which the two take equal time, None where the same kind of device is chosen at all
    sizes that were priced: from ``smallest`` to ``largest``. ``below`` and ``above`` are the devices chosen on either
    side.
    """

    batch: float | None
    below: str
    above: str
    smallest: int
    largest: int


@dataclass(frozen=True)
class Measured:
    """Real steps on a device of this machine: the median and a 90 % interval, in seconds.

    ``off`` is by what share of it the prediction is longer; negative where it is shorter.
    """

    step_seconds: float
    low: float
    high: float
    off: float


@dataclass(frozen=True)
class ExplanationData:
    """What was asked, what was chosen, and what the prediction is made of.

    ``layers`` add up to ``devices[name].components["compute"]``, and so do ``ops`` and ``bounds[name]`` (what limits
    the ops: arithmetic, memory, overhead, optimizer). ``notes`` name what is a guess. ``advice`` lists changes that
    would save time, with their prices, and ``bottlenecks`` single ops that take most of a phase. ``timeline`` says
    when the host and the device do what. Of a job, a step is the whole job, and ``parts`` are what it is made of.
    ``limits`` are the seconds of a step by what bounds them, by device; ``usual_errors`` say how far such numbers are
    off as a rule. ``turn`` is None where no other batch sizes were priced, ``measured`` empty unless steps were timed.
    ``left_out`` says, in a sentence each, which devices that were asked for cannot run it, and why. ``real`` are the
    real steps that times rest on, by device.
    """

    workload: Mapping[str, Any]
    decision: Decision
    devices: Mapping[str, Cost]
    layers: tuple[LayerRow, ...]
    ops: tuple[OpRow, ...]
    notes: tuple[str, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    bottlenecks: tuple[Bottleneck, ...] = ()
    bounds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    advice: tuple[Advice, ...] = ()
    timeline: Mapping[str, tuple[SpanRow, ...]] = field(default_factory=dict)
    parts: tuple[PartRow, ...] = ()
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    usual_errors: Mapping[str, UsualError] = field(default_factory=dict)
    turn: Turn | None = None
    measured: Mapping[str, Measured] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    real: Mapping[str, RealSteps] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """What a step is called: one of a job is the job."""
        return "job" if self.parts else "step"

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """The documented schema 1, as plain values."""
        values = asdict(self)
        decision = values.pop("decision")
        return {
            "schema": SCHEMA,
            "choice": decision["device"],
            "confidence": decision["confidence"],
            "reason": decision["reason"],
            "break_even_steps": decision["break_even_steps"],
            "verdict": self.decision.verdict,
            "objective": decision["objective"],
            "threads": decision["threads"],
            "thread_counts": decision["thread_options"],
            "speedup": decision["speedup"],
            **values,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of ``to_dict``. Raises PlacerError for anything else."""
        import msgspec

        if values.get("schema") != SCHEMA:
            raise PlacerError(f"an explanation of schema {values.get('schema')!r} cannot be read, only {SCHEMA}")
        decision = {**values, "device": values.get("choice"), "thread_options": values.get("thread_counts", ())}
        try:
            return msgspec.convert({**values, "decision": decision}, cls)
        except msgspec.ValidationError as error:
            raise PlacerError(f"not a complete explanation: {error}") from error
