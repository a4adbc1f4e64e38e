"""What was timed of one step, of its phases and of the ops in it, less what recording them added.

A training step's phases are told apart by reading the clock where one ends and the next begins, which takes 50
nanoseconds. What a phase takes beyond its ops is charged to what goes on in it: Python around modules in forward,
autograd's engine in backward, the optimizer's loop in the update.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.calibration.measuring.recording import RecorderCost
from placer.calibration.measuring.timing import Phases, spread_of
from placer.pricing import Work, describe_step
from placer.pricing.framework import framework_counts
from placer.tracing import OpCall, Trace

#: What recording an event costs, in costs of the average one. An event nested in an op costs less than any other: ops
#: carry their inputs' sequence numbers, and autograd's nodes put their names together first. The last is what lies
#: between the ends of an op's own event.
NESTED_COST, OUTER_COST, OWN_SHARE = 0.75, 1.28, 0.2
#: Least share of what was timed that is the op's or the step's own, however much recording is thought to take.
LEAST_SHARE = 0.25
#: Most by which recorded steps may differ from undisturbed ones by drift alone, and the standard deviation of its log:
#: a virtual machine changes its speed within a second.
MOST_DRIFT, DRIFT = 1.5, 0.1
#: Standard deviation of what recording adds to a step, as a share of what it adds on average, and the most by which one
#: step may differ from the average. An event of an op in a loop costs half of one between large ops, which evict the
#: recorder's code.
RECORDING_DOUBT, MOST_UNLIKE = 0.4, 3.0


@dataclass(frozen=True, slots=True)
class OpTiming:
    """One op call of the trace and its event: seconds on the host, events recorded within, seconds on the device.

    ``kernels`` is the number of kernels it ran in, 0 where none was recorded; that of a tensor's share of an update may
    be less than one.
    """

    call: OpCall
    host_seconds: float
    inside: int
    device_seconds: float
    kernels: float = 0.0

    def corrected(self, recorder: RecorderCost) -> float:
        """Host seconds without what recording added."""
        added = recorder.per_event * (NESTED_COST * self.inside + OWN_SHARE)
        return max(self.host_seconds - added, LEAST_SHARE * self.host_seconds)


@dataclass(frozen=True)
class StepTiming:
    """One step timed twice: whole and undisturbed (``seconds``), and op by op in steps of ``recorded_seconds``.

    ``spread``: inter-quartile range over the median of undisturbed steps. ``matched``: the share of the trace's op
    calls that were found among the events. ``lengthened``: how much longer the median recorded step was than the
    medians of its parts; its ops are taken to be longer by that factor. ``phases``: the parts of ``seconds`` in
    forward, backward and update; None where they are not known.
    """

    seconds: float
    spread: float
    recorded_seconds: float
    events: int
    ops: tuple[OpTiming, ...]
    matched: float
    lengthened: float = 1.0
    phases: Phases | None = None

    @property
    def kernel_seconds(self) -> float:
        return sum(op.device_seconds for op in self.ops)

    def undisturbed_share(self, recorder: RecorderCost) -> float:
        """Seconds of an undisturbed step per second of a recorded one without recording: 1 but for drift and noise.

        The ops are timed in recorded steps, the step in others; this factor brings both to one speed, so that they add
        up. Where recording took longer than the step itself, the ratio says little and is drawn towards 1.
        """
        added = self._added(recorder)
        doubt = RECORDING_DOUBT * added / self.seconds
        known = DRIFT**2 / (DRIFT**2 + doubt**2)
        ratio = self.seconds / max(self.recorded_seconds - added, 1e-9)
        return float(min(max(ratio, 1.0 / MOST_DRIFT), MOST_DRIFT) ** known)

    def recording(self, recorder: RecorderCost) -> RecorderCost:
        """What recording cost in this very step, where it costs ``recorder`` on average.

        Recorded steps take longer because the machine was slower or because of the recorder. What
        ``undisturbed_share`` does not put down to the machine is the recorder's.
        """
        expected = self._added(recorder)
        if expected <= 0.0:
            return recorder
        added = self.recorded_seconds - self.seconds / self.undisturbed_share(recorder)
        factor = min(max(added / expected, 1.0 / MOST_UNLIKE), MOST_UNLIKE)
        return RecorderCost(factor * recorder.per_step, factor * recorder.per_event)

    def _added(self, recorder: RecorderCost) -> float:
        nested = min(sum(op.inside for op in self.ops), self.events)
        outer = self.events - nested
        return recorder.per_step + recorder.per_event * (NESTED_COST * nested + OUTER_COST * outer)


def observe(
    trace: Trace,
    timing: StepTiming,
    probe: Probe,
    *,
    device: str,
    threads: int,
    recorder: RecorderCost | None = None,
) -> StepObservation:
    """Group a step's timings by what a price depends on; those of a CPU without what ``recorder`` added.

    What an accelerator's ops keep the host is not fitted (see ``pricing.host_costs``), and left as it was recorded.
    """
    groups: dict[Work, list[tuple[float, float, float]]] = {}
    missing: Counter[Work] = Counter()
    found = {id(op.call): op for op in timing.ops}
    scale = 1.0
    if recorder is not None:
        scale = timing.lengthened * timing.undisturbed_share(recorder)
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
        host = op.host_seconds if recorder is None else scale * op.corrected(recorder)
        on_host.append(host)
        groups.setdefault(work, []).append((host if device == "cpu" else op.device_seconds, host, op.kernels))
    ops = [_observed(work, times, len(times)) for work, times in groups.items()]
    ops += [_observed(work, (), count) for work, count in missing.items()]
    return StepObservation(
        device=device,
        threads=threads,
        family=probe.family,
        name=probe.name,
        spread=timing.spread,
        seconds=timing.seconds,
        counts=framework_counts(trace, on_host),
        ops=tuple(ops),
        gaps=_gaps(trace, timing, on_host, incomplete),
    )


def _gaps(trace: Trace, timing: StepTiming, on_host: Sequence[float], incomplete: Set[str]) -> dict[str, float]:
    """Seconds that forward and backward took beyond their ops, and the update with its ops.

    ``on_host`` has the seconds of each op; of the phases in ``incomplete`` an op is missing.
    """
    if timing.phases is None:
        return {}
    inside = {"forward": 0.0, "loss": 0.0, "backward": 0.0, "optimizer": 0.0}
    for call, seconds in zip(trace.calls, on_host, strict=True):
        inside[call.phase] += seconds
    gaps = {"update": timing.phases["update"]}
    if not incomplete & {"forward", "loss"}:
        gaps["forward"] = timing.phases["forward"] - inside["forward"] - inside["loss"]
    if "backward" not in incomplete:
        gaps["backward"] = timing.phases["backward"] - inside["backward"]
    return gaps


def _observed(work: Work, times: Sequence[tuple[float, float, float]], count: int) -> OpObservation:
    """``times``: (device seconds, host seconds, kernels) of each call; empty where all ``count`` calls were missed."""
    observation = OpObservation(
        work.family, work.op, work.dtype, work.features, None, 0.0, 0.0, count, effort=work.effort, loads=work.loads
    )
    if not times:
        return observation
    seconds = sorted(t[0] for t in times)
    return replace(
        observation,
        # The mean, not the median, adds up to the step: equal calls in different places differ for a reason.
        seconds=statistics.fmean(seconds),
        host_seconds=statistics.median(t[1] for t in times),
        spread=spread_of(seconds),
        kernels=statistics.fmean(t[2] for t in times),
    )
