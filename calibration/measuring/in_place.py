"""Times ops where they stand: inside a real step, by the framework's own event recorder.

The same op costs 0.5 to 3 times its hot-loop time inside a step: caches are cold, memory is fresh, autograd records.
So every op sample placer learns from is taken in place. The step is timed without the recorder too, and the difference,
divided by the number of events, is what recording added to each: it is taken off again.

Neighbours that come and go within milliseconds disturb parts of a step that began and ended undisturbed. On a machine
at rest they can only lengthen, so of an op's repetitions the fastest counts: of five, its mean error is two thirds of
the median's. What people wait for is the median step, though: it is told how much longer than those it takes.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from placer.calibration.measuring.matching import NESTED_COST, OUTER_COST, OpTiming, RecorderCost, match
from placer.calibration.measuring.phases import Ends, Phases, typical
from placer.calibration.measuring.recording import Recorded, record
from placer.calibration.measuring.speed_probe import STRETCH, SpeedProbe, at_usual_pace, watched
from placer.tracing import Trace

#: Undisturbed and recorded steps at most: reading the events of a recorded step costs more than the step.
MOST_ROUNDS, MOST_RECORDED = 20, 6
#: Recorded steps of those that are long.
LEAST_RECORDED = 4
#: Steps that last longer (seconds) repeat themselves well enough to be timed less often.
LONG_STEP = 0.02
#: Steps run untimed after the recorder, those that are not long: they take 1.4, 1.15 and 1.07 times what later ones do.
AFTER_RECORDING = 3
#: Most by which recorded steps may differ from undisturbed ones before something else than drift is at work, and the
#: standard deviation of its log: a virtual machine changes pace within a second.
MOST_DRIFT, DRIFT = 1.5, 0.1
#: Standard deviation of what recording adds to a step, in parts of what it adds to the average one: an event of an op
#: in a loop costs half of what one costs between large ones, which push the recorder's code out of the caches. And the
#: most by which one step may differ.
RECORDING_DOUBT, MOST_UNLIKE = 0.4, 3.0
#: Layers of the chains that recording is timed on, and how often each is.
CHAINS, COST_ROUNDS = (2, 8, 24), 4
#: Seconds one event costs at most, wherever placer has run.
MOST_PER_EVENT = 5e-6


@dataclass(frozen=True)
class StepTiming:
    """One step timed twice: whole and undisturbed (``seconds``), and op by op in steps of ``recorded_seconds``.

    ``reading`` is the median reading of the machine's speed_probe around them, in seconds; 0 where it was not felt. ``lengthened``
    is how much longer the median undisturbed step took than ``seconds``, and each of its ops with it, by all one knows.
    ``phases`` are the parts of ``seconds`` that went into forward, backward and update; None where the step does not
    tell them apart.
    """

    seconds: float
    spread: float
    recorded_seconds: float
    events: int
    ops: tuple[OpTiming, ...]
    matched: float
    reading: float = 0.0
    lengthened: float = 1.0
    phases: Phases | None = None

    def undisturbed_share(self, recorder: RecorderCost) -> float:
        """Seconds of an undisturbed step per second of a recorded one, recording taken off: 1 but for drift and noise.

        Ops are timed in recorded steps, the step in others; brought to one speed they add up. Where recording took
        longer than the step itself, their quotient says little of the machine's pace, and is drawn towards 1.
        """
        added = self._added(recorder)
        recorded = self.recorded_seconds - added
        doubt = RECORDING_DOUBT * added / self.seconds
        known = DRIFT**2 / (DRIFT**2 + doubt**2)
        return float(min(max(self.seconds / max(recorded, 1e-9), 1.0 / MOST_DRIFT), MOST_DRIFT) ** known)

    def recording(self, recorder: RecorderCost) -> RecorderCost:
        """What recording cost in this very step, where it cost ``recorder`` on average.

        How much longer recorded steps took is either the machine's pace or the recorder: what ``undisturbed_share``
        does not take for the one is the other. For devices that the host does not run ahead of.
        """
        expected = self._added(recorder)
        if expected <= 0.0:
            return recorder
        added = self.recorded_seconds - self.seconds / self.undisturbed_share(recorder)
        factor = min(max(added / expected, 1.0 / MOST_UNLIKE), MOST_UNLIKE)
        return RecorderCost(factor * recorder.per_step, factor * recorder.per_event)

    def _added(self, recorder: RecorderCost) -> float:
        nested = min(sum(op.inside for op in self.ops), self.events)
        return recorder.per_step + recorder.per_event * (NESTED_COST * nested + OUTER_COST * (self.events - nested))


@dataclass(frozen=True, slots=True)
class Whole:
    """One undisturbed step."""

    seconds: float
    phases: Phases | None


@dataclass(frozen=True)
class Stopwatch:
    """Times one step, whole and recorded; with a ``speed_probe``, steps at another pace than the usual one are left out.

    ``once``: seconds that a step takes, about.
    """

    step: Callable[[], object]
    synchronize: Callable[[], None] | None
    clock: Callable[[], float]
    speed_probe: SpeedProbe | None
    once: float = 0.0

    def seconds(self) -> float:
        """Of one undisturbed step."""
        return self.run().seconds

    def run(self) -> Whole:
        """One undisturbed step, and its phases where ``step`` returns what the clock said at their ends."""
        start = self.clock()
        said = self.step()
        if self.synchronize is not None:
            self.synchronize()
        end = self.clock()
        if isinstance(said, Ends) and self.synchronize is None:
            return Whole(end - start, said.phases(start, end))
        # A host that runs ahead of its device has left a phase long before the device has.
        return Whole(end - start, None)

    def in_turns(
        self, before: int, recorded: int, after: int
    ) -> tuple[list[tuple[Whole, float]], list[tuple[Recorded, float]]]:
        """Undisturbed steps (each with its reading) on both sides of the recorded ones: a machine that drifts shifts both.

        The first recorded step, in which the recorder's memory is fresh and its code cold, counts only if it is long.
        """
        resume = self.seconds if self.once < STRETCH else None
        around = watched(self.speed_probe, self.run, before, resume=resume)
        runs = record(self.seconds, recorded, accelerated=self.synchronize is not None, speed_probe=self.speed_probe)
        for _ in range(AFTER_RECORDING if self.once < LONG_STEP else 0):
            self.seconds()
        around += watched(self.speed_probe, self.run, after, resume=resume)
        if len(runs) > LEAST_RECORDED:
            runs = runs[1:]
        return at_usual_pace(self.speed_probe, around), at_usual_pace(self.speed_probe, runs)


def time_step(
    step: Callable[[], object],
    trace: Trace,
    *,
    synchronize: Callable[[], None] | None = None,
    seconds: float = 0.1,
    clock: Callable[[], float] = time.perf_counter,
    speed_probe: SpeedProbe | None = None,
) -> StepTiming:
    """Time ``step`` (already warm) whole and op by op, within about ``seconds`` (at least two steps of each).

    Another shape teaches more than another repetition of this one, so there are few. With a ``speed_probe``, steps at another
    pace than the machine's usual one are left out where there are others; of those at rest, see the top of this file.
    """
    once = Stopwatch(step, synchronize, clock, speed_probe).seconds()
    stopwatch = Stopwatch(step, synchronize, clock, speed_probe, once)
    rounds = int(min(max(seconds / 2 / max(once, 1e-6), 2), MOST_ROUNDS))
    recorded_rounds = MOST_RECORDED if once < LONG_STEP else LEAST_RECORDED
    around, recorded = stopwatch.in_turns(rounds + 1, recorded_rounds, rounds // 2)
    reading = statistics.median(reading for _, reading in (*around, *recorded))
    quiet = speed_probe is not None and speed_probe.is_quiet(reading)
    whole = sorted(run.seconds for run, _ in around)
    quarter, median = whole[len(whole) // 4], statistics.median(whole)
    matched = [match(trace, run.events) for run, _ in recorded]
    timings = [_of_all(seen, quiet) for seen in zip(*matched, strict=True)]
    found = [t for t in timings if t is not None]
    between = [run.seconds - _total(ops) for (run, _), ops in zip(recorded, matched, strict=True)]
    return StepTiming(
        seconds=quarter if quiet else median,
        spread=(whole[len(whole) * 3 // 4] - quarter) / median,
        recorded_seconds=_total(found) + (min(between) if quiet else statistics.median(between)),
        events=round(statistics.median(len(run.events) for run, _ in recorded)),
        ops=tuple(found),
        matched=len(found) / max(len(timings), 1),
        reading=reading,
        lengthened=median / quarter if quiet else 1.0,
        phases=typical([run.phases for run, _ in around if run.phases is not None], quarter if quiet else median),
    )


def recorder_cost(
    device: str,
    *,
    synchronize: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    speed_probe: SpeedProbe | None = None,
) -> RecorderCost:
    """What recording costs here: chains of tiny layers of several lengths, trained with and without it, in turns.

    Whatever it is taken for too much is taken off the ops and charged to what lies between them, so one disturbed
    moment must not decide: the median slope over all pairs of lengths of all rounds (Sen, 1968).
    """
    record(lambda: 0.0, 1, accelerated=synchronize is not None)  # the first of a process sets the recorder up
    chains = [_chain(depth, device) for depth in CHAINS]
    for step in chains:
        for _ in range(3):
            step()
    points, slopes = [], []
    for _ in range(COST_ROUNDS):
        found = [_added(Stopwatch(step, synchronize, clock, speed_probe)) for step in chains]
        points += found
        slopes += [(b - a) / (n - m) for (m, a), (n, b) in itertools.combinations(found, 2) if n != m]
    per_event = min(max(statistics.median(slopes), 0.0), MOST_PER_EVENT) if slopes else 0.0
    return RecorderCost(max(statistics.median(added - n * per_event for n, added in points), 0.0), per_event)


def _chain(depth: int, device: str) -> Callable[[], None]:
    chain = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(16, 16), nn.Tanh()))).to(device)
    rows = torch.randn(16, 16, device=device)

    def step() -> None:
        chain.zero_grad()
        chain(rows).sum().backward()

    return step


def _added(stopwatch: Stopwatch) -> tuple[float, float]:
    """(events of a step, seconds that recording them adds)."""
    around, recorded = stopwatch.in_turns(MOST_ROUNDS // 2, MOST_RECORDED, MOST_ROUNDS // 2)
    events = statistics.median(len(run.events) for run, _ in recorded)
    plain = statistics.median(run.seconds for run, _ in around)
    return events, statistics.median(run.seconds for run, _ in recorded) - plain


def _of_all(seen: Sequence[OpTiming | None], quiet: bool) -> OpTiming | None:
    """One timing of an op's repetitions: the fastest of a machine at rest, else the middle one."""
    found = sorted((t for t in seen if t is not None), key=lambda t: t.host_seconds)
    if not found:
        return None
    chosen = found[0 if quiet else (len(found) - 1) // 2]
    device = statistics.median(t.device_seconds for t in found)
    return OpTiming(chosen.call, chosen.host_seconds, chosen.inside, device)


def _total(ops: Sequence[OpTiming | None]) -> float:
    return sum(op.host_seconds for op in ops if op is not None)
