"""Turns a timed step into an observation: its ops by what their price depends on, its phases without their ops."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence, Set

from placer.calibration.measuring.observation import OpObservation, StepObservation
from placer.calibration.measuring.step_timing import HOST_BOUND, RecorderCost, StepTiming
from placer.pricing import Work, describe_step, feature_names, framework_counts
from placer.tracing import Trace

#: Least share of what was timed that is the op's own, however much launches are estimated to take.
LEAST_OWN = 0.25


def observe(
    trace: Trace, timing: StepTiming, *, device: str, threads: int, family: str, name: str, recorder: RecorderCost,
    per_launch: float = 0.0,
) -> StepObservation:  # fmt: skip
    """Group a step's timings by what a price depends on, without what ``recorder`` added.

    ``per_launch``: seconds that a launch takes longer in this process than in the user's.
    """
    groups: dict[Work, list[tuple[float, float, float]]] = {}
    missing: Counter[Work] = Counter()
    found = {id(op.call): op for op in timing.ops}
    scale = timing.lengthened * timing.undisturbed_share(recorder)
    if device == "cpu":
        recorder = timing.recording(recorder)
    on_host: list[float] = []
    incomplete: set[str] = set()
    for call, work in zip(trace.calls, describe_step(trace), strict=True):
        op = found.get(id(call))
        if op is None:
            missing[work] += 1
            incomplete.add(call.phase)
            on_host.append(0.0)
            continue
        host = scale * op.corrected(recorder)
        host = max(host - per_launch * op.kernels, LEAST_OWN * host)
        on_host.append(host)
        groups.setdefault(work, []).append((host if device == "cpu" else op.device_seconds, host, op.kernels))
    ops = [_observed(work, times, len(times)) for work, times in groups.items()]
    ops += [_observed(work, (), count) for work, count in missing.items()]
    return StepObservation(
        device=device, threads=threads, family=family, name=name, spread=timing.spread,
        seconds=max(timing.lengthened * _without_launches(timing, per_launch), LEAST_OWN * timing.seconds),
        counts=framework_counts(trace, on_host), ops=tuple(ops), reading=timing.reading,
        gaps=_gaps(trace, timing, on_host, incomplete),
    )  # fmt: skip


def _without_launches(timing: StepTiming, per_launch: float) -> float:
    """Seconds of the step where a launch takes ``per_launch`` seconds less, and the kernels as long as they do.

    Where the kernels fill the step, the host runs ahead of them and its launches are no part of it.
    """
    launches = sum(op.kernels for op in timing.ops)
    kernels = sum(op.device_seconds for op in timing.ops)
    if kernels >= HOST_BOUND * timing.seconds:
        return timing.seconds
    return max(timing.seconds - per_launch * launches, kernels)


def _gaps(trace: Trace, timing: StepTiming, on_host: Sequence[float], incomplete: Set[str]) -> dict[str, float]:
    """Seconds that forward and backward took beyond their ops, and the update with its ops.

    ``on_host`` has the seconds of each op; of the phases in ``incomplete`` an op is missing.
    """
    if timing.phases is None:
        return {}
    phases = timing.phases.scaled(timing.lengthened)
    inside = {"forward": 0.0, "loss": 0.0, "backward": 0.0, "optimizer": 0.0}
    for call, seconds in zip(trace.calls, on_host, strict=True):
        inside[call.phase] += seconds
    gaps = {"update": phases.update}
    if not incomplete & {"forward", "loss"}:
        gaps["forward"] = phases.forward - inside["forward"] - inside["loss"]
    if "backward" not in incomplete:
        gaps["backward"] = phases.backward - inside["backward"]
    return gaps


def _observed(work: Work, times: Sequence[tuple[float, float, float]], count: int) -> OpObservation:
    """``times``: (device seconds, host seconds, kernels) of each call; empty where all ``count`` calls were missed."""
    assert len(work.sizes) + len(work.flags) == len(feature_names(work.family))
    features = (work.flops, work.bytes, *work.sizes, *work.flags)
    if not times:
        return OpObservation(work.family, work.op, work.dtype, features, None, 0.0, 0.0, count)
    seconds = sorted(t[0] for t in times)
    median = statistics.median(seconds)
    spread = (seconds[len(seconds) * 3 // 4] - seconds[len(seconds) // 4]) / median if median > 0 else 0.0
    host = statistics.median(t[1] for t in times)
    # The mean, not the median, adds up to the step: equal calls in different places differ for a reason.
    mean = statistics.fmean(seconds)
    kernels = statistics.fmean(t[2] for t in times)
    return OpObservation(work.family, work.op, work.dtype, features, mean, host, spread, count, kernels)
