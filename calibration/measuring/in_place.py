"""Times ops in place: inside a real step, by the framework's own event recorder.

Inside a step an op costs 0.5 to 3 times its time in a hot loop: caches are cold, memory is fresh, autograd records. So
every op sample is taken in place. The step is timed without the recorder too; the difference, divided by the number of
events, is what recording added to each, and is taken off again.

Contention that comes and goes within milliseconds disturbs parts of a step that began and ended undisturbed. On a quiet
machine it can only lengthen, so the fastest repetition of an op counts: of five, its mean error is two thirds of the
median's. People wait for the median step, though, so the timing says how much longer that one takes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from placer.calibration.measuring.matching import match
from placer.calibration.measuring.speed_probe import SpeedProbe
from placer.calibration.measuring.step_timing import OpTiming, StepTiming, typical
from placer.calibration.measuring.stopwatch import LEAST_RECORDED, LONG_STEP, Stopwatch
from placer.tracing import Trace

#: Undisturbed and recorded steps at most: reading the events of a recorded step costs more than the step.
MOST_ROUNDS, MOST_RECORDED = 20, 6


def time_step(
    step: Callable[[], object], trace: Trace, *, synchronize: Callable[[], None] | None = None, seconds: float = 0.1,
    clock: Callable[[], float] = time.perf_counter, speed_probe: SpeedProbe | None = None,
    ended: Callable[[], None] | None = None,
) -> StepTiming:  # fmt: skip
    """Time ``step`` (already warm) whole and op by op, within about ``seconds`` (at least two steps of each).

    Repetitions are few: another shape teaches more than another repetition of this one. With a ``speed_probe``, steps
    at another speed than the usual one are left out where there are others. ``ended`` is called right after the last.
    """
    once = Stopwatch(step, synchronize, clock, speed_probe).seconds()
    stopwatch = Stopwatch(step, synchronize, clock, speed_probe, once)
    rounds = int(min(max(seconds / 2 / max(once, 1e-6), 2), MOST_ROUNDS))
    recorded_rounds = MOST_RECORDED if once < LONG_STEP else LEAST_RECORDED
    around, recorded = stopwatch.in_turns(rounds + 1, recorded_rounds, rounds // 2)
    if ended is not None:
        ended()
    reading = statistics.median(reading for _, reading in (*around, *recorded))
    quiet = speed_probe is not None and speed_probe.is_quiet(reading)
    whole = sorted(run.seconds for run, _ in around)
    quarter, median = whole[len(whole) // 4], statistics.median(whole)
    matched = [match(trace, run.events) for run, _ in recorded]
    timings = [_one_of(repetitions, quiet) for repetitions in zip(*matched, strict=True)]
    found = [t for t in timings if t is not None]
    between = [run.seconds - _total(ops) for (run, _), ops in zip(recorded, matched, strict=True)]
    step_seconds = quarter if quiet else median
    return StepTiming(
        seconds=step_seconds, spread=(whole[len(whole) * 3 // 4] - quarter) / median,
        recorded_seconds=_total(found) + (min(between) if quiet else statistics.median(between)),
        events=round(statistics.median(len(run.events) for run, _ in recorded)), ops=tuple(found),
        matched=len(found) / max(len(timings), 1), reading=reading, lengthened=median / step_seconds,
        phases=typical([run.phases for run, _ in around if run.phases is not None], step_seconds),
    )  # fmt: skip


def _one_of(repetitions: Sequence[OpTiming | None], quiet: bool) -> OpTiming | None:
    """One timing for an op's repetitions: the fastest on a quiet machine, else the middle one. None without any."""
    found = sorted((t for t in repetitions if t is not None), key=lambda t: t.host_seconds)
    if not found:
        return None
    chosen = found[0 if quiet else (len(found) - 1) // 2]
    device = statistics.median(t.device_seconds for t in found)
    return OpTiming(chosen.call, chosen.host_seconds, chosen.inside, device, chosen.kernels)


def _total(ops: Sequence[OpTiming | None]) -> float:
    return sum(op.host_seconds for op in ops if op is not None)
