"""What one measured probe leaves behind, as plain numbers that can be written to disk and fitted again later."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from placer.calibration.measuring.in_place import StepTiming
from placer.calibration.measuring.matching import RecorderCost
from placer.pricing import CONTEXT_SIZES, FAMILIES, Work, describe_step, feature_names, framework_counts
from placer.profile import json_values
from placer.tracing import Trace

#: Least share of what was timed that is no page fault, whatever those are said to cost.
LEAST_OWN = 0.25


@dataclass(frozen=True)
class OpObservation:
    """One distinct op of a probe: its features, and the median of its corrected times (seconds) over ``count`` calls.

    ``seconds`` is None where no event matched: the op was priced, not measured.
    """

    family: str
    op: str
    dtype: str
    features: tuple[float, ...]
    seconds: float | None
    host_seconds: float
    spread: float
    count: int

    def work(self) -> Work:
        """The op as pricing describes it."""
        sizes = len(FAMILIES[self.family].sizes) + len(CONTEXT_SIZES)
        flops, moved, *rest = self.features
        return Work(self.family, self.op, self.dtype, flops, moved, tuple(rest[:sizes]), tuple(rest[sizes:]))


@dataclass(frozen=True)
class StepObservation:
    """One probe, measured on one device at one number of threads."""

    device: str
    threads: int
    family: str
    name: str
    seconds: float
    spread: float
    counts: Mapping[str, float]
    ops: tuple[OpObservation, ...]
    #: The median reading of the machine's speed_probe (seconds) around what was timed; 0 where it was not felt.
    reading: float = 0.0
    #: What forward and backward took beyond their ops, and the update with its ops (seconds); empty where the step's
    #: phases were not told apart, or an op of theirs was not found.
    gaps: Mapping[str, float] = field(default_factory=dict)

    def is_finite(self) -> bool:
        """Whether every time is a number: a clock or a recorder may lie."""
        times = [self.seconds, self.spread, self.reading, *self.gaps.values()]
        times += [t for op in self.ops for t in (op.seconds or 0.0, op.host_seconds, op.spread)]
        return all(map(math.isfinite, times))

    def to_json(self) -> dict[str, Any]:
        """Plain containers only."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> StepObservation:
        """The inverse of ``to_json``, every value checked; raises json_values.UnfitError (a ValueError) on anything else."""
        values = json_values.json_object(data, "step", tuple(f.name for f in fields(cls)))
        return cls(
            device=json_values.text(values["device"], "device"),
            threads=json_values.integer(values["threads"], "threads", 1),
            family=json_values.text(values["family"], "family"),
            name=json_values.text(values["name"], "name"),
            seconds=json_values.number(values["seconds"], "seconds", 0.0),
            spread=json_values.number(values["spread"], "spread", 0.0),
            counts=json_values.numbers(values["counts"], "counts", 0.0),
            ops=tuple(_op_from_json(op) for op in json_values.json_list(values["ops"], "ops")),
            reading=json_values.number(values["reading"], "reading", 0.0),
            gaps=json_values.numbers(values["gaps"], "gaps"),
        )


def _op_from_json(data: Any) -> OpObservation:
    values = json_values.json_object(data, "op", tuple(f.name for f in fields(OpObservation)))
    family = json_values.text(values["family"], "family")
    if family not in FAMILIES:
        raise json_values.UnfitError(f"family: {family!r} is none")
    features = json_values.vector(values["features"], "features", 2 + len(feature_names(family)))
    seconds = values["seconds"]
    return OpObservation(
        family=family,
        op=json_values.text(values["op"], "op"),
        dtype=json_values.text(values["dtype"], "dtype"),
        features=tuple(features.tolist()),
        seconds=None if seconds is None else json_values.number(seconds, "seconds"),
        host_seconds=json_values.number(values["host_seconds"], "host_seconds"),
        spread=json_values.number(values["spread"], "spread"),
        count=json_values.integer(values["count"], "count", 1),
    )


def observe(
    trace: Trace,
    timing: StepTiming,
    *,
    device: str,
    threads: int,
    family: str,
    name: str,
    recorder: RecorderCost,
    fresh_seconds: Mapping[int, float] | None = None,
) -> StepObservation:
    """Groups a step's timings by what a price depends on, without what ``recorder`` added.

    ``fresh_seconds`` is what calls of the trace spent on fresh pages, by number. Pricing asks whether the user's
    process gets fresh pages there, and adds it where it does: it is no part of an op.
    """
    fresh = fresh_seconds or {}
    groups: dict[Work, list[tuple[float, float]]] = {}
    missing: dict[Work, int] = {}
    found = {id(op.call): op for op in timing.ops}
    scale = timing.lengthened * timing.undisturbed_share(recorder)
    if device == "cpu":
        recorder = timing.recording(recorder)
    on_host: list[float] = []
    torn: set[str] = set()
    for position, (call, work) in enumerate(zip(trace.calls, describe_step(trace), strict=True)):
        op = found.get(id(call))
        if op is None:
            missing[work] = missing.get(work, 0) + 1
            torn.add(call.phase)
            on_host.append(0.0)
            continue
        host = scale * op.corrected(recorder)
        on_host.append(host)
        own = max(host - fresh.get(position, 0.0), LEAST_OWN * host)
        groups.setdefault(work, []).append((own if device == "cpu" else op.device_seconds, own))
    ops = [_measured(work, times) for work, times in groups.items()]
    ops += [_unmeasured(work, count) for work, count in missing.items()]
    return StepObservation(
        device=device, threads=threads, family=family, name=name, spread=timing.spread,
        seconds=max(timing.lengthened * timing.seconds - sum(fresh.values()), LEAST_OWN * timing.seconds),
        counts=framework_counts(trace, on_host), ops=tuple(ops), reading=timing.reading,
        gaps=_gaps(trace, timing, on_host, torn),
    )  # fmt: skip


def _gaps(trace: Trace, timing: StepTiming, on_host: Sequence[float], torn: Set[str]) -> dict[str, float]:
    """What the phases took beyond their ops, of which ``on_host`` has the seconds; the update's ops stay with it.

    Of a phase in ``torn`` an op is missing.
    """
    if timing.phases is None:
        return {}
    phases = timing.phases.scaled(timing.lengthened)
    inside = {"forward": 0.0, "loss": 0.0, "backward": 0.0, "optimizer": 0.0}
    for call, seconds in zip(trace.calls, on_host, strict=True):
        inside[call.phase] += seconds
    gaps = {"update": phases.update}
    if not torn & {"forward", "loss"}:
        gaps["forward"] = phases.forward - inside["forward"] - inside["loss"]
    if "backward" not in torn:
        gaps["backward"] = phases.backward - inside["backward"]
    return gaps


def _features(work: Work) -> tuple[float, ...]:
    assert len(work.sizes) + len(work.flags) == len(feature_names(work.family))
    return (work.flops, work.bytes, *work.sizes, *work.flags)


def _measured(work: Work, times: Sequence[tuple[float, float]]) -> OpObservation:
    seconds = sorted(t[0] for t in times)
    median = statistics.median(seconds)
    spread = (seconds[len(seconds) * 3 // 4] - seconds[len(seconds) // 4]) / median if median > 0 else 0.0
    host = statistics.median(t[1] for t in times)
    # The mean, not the median, adds up to the step: equal calls in different places differ for a reason.
    mean = statistics.fmean(seconds)
    return OpObservation(work.family, work.op, work.dtype, _features(work), mean, host, spread, len(times))


def _unmeasured(work: Work, count: int) -> OpObservation:
    return OpObservation(work.family, work.op, work.dtype, _features(work), None, 0.0, 0.0, count)
