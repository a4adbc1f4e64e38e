"""Times several steps in turns, so that a machine that slows down slows them all down alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from placer.calibration.measuring.speed_probe import STRETCH, SpeedProbe, at_usual_speed, is_alike, watched
from placer.calibration.measuring.step import Step
from placer.calibration.measuring.timing import Clock, block_seconds, percentile
from placer.errors import TimerError

#: Steps timed per round at most: more add nothing.
MAX_STEPS_PER_ROUND = 200
#: An accelerator is waited for once per block of at least this many seconds; a wait costs about 10 microseconds.
BLOCK_SECONDS = 2e-3
#: Steps longer than this (seconds) fill the caches themselves: no untimed step runs after another workload's.
COLD_SECONDS = 0.3
MIN_ROUNDS = 3


@dataclass(frozen=True)
class Measurement:
    """Seconds per step: median, 10th and 90th percentile over all rounds; ``count`` steps were timed.

    ``repeatability``: the ratio, 1 or more, between the medians of the first and the second half of the rounds. Steps
    at another speed than the machine's usual one are left out of these. ``anyhow`` is the median of all steps,
    ``usual`` the share of steps at the usual speed. Where that is 0, or without a speed probe, nothing is left out.
    """

    median: float
    p10: float
    p90: float
    count: int
    repeatability: float
    anyhow: float
    usual: float = 1.0


@dataclass
class _Turn:
    """A step with what is to be timed of it in each round, and what was: seconds of a step with their readings."""

    step: Step
    synchronize: Callable[[], object] | None
    clock: Clock
    speed_probe: SpeedProbe | None
    rounds: int = 0
    blocks: int = 1
    block: int = 1
    untimed: int = 0
    resume: Step | None = None
    times: list[list[tuple[float, float]]] = field(default_factory=list)
    failure: Exception | None = None

    def attempt(self, action: Callable[[], None]) -> None:
        """Do it. A step that fails (no memory, a bug of its own) must not end the run: it has no more rounds."""
        try:
            action()
        except Exception as error:  # noqa: BLE001
            self.failure, self.rounds = error, 0

    def plan(self, rounds: int, seconds: float) -> None:
        """Warm up (the first calls select kernels and grow allocators), and spread the time over the rounds."""
        self.step.prepare()
        self.step()
        estimate = self.seconds()
        for _ in range(4):
            if estimate < BLOCK_SECONDS * 5:
                estimate = min(estimate, self.seconds())
        if estimate <= 0:
            raise TimerError("a whole step took no time by the clock")
        self.rounds = rounds if estimate * rounds <= seconds else MIN_ROUNDS
        wanted = max(1, min(MAX_STEPS_PER_ROUND, int(seconds / self.rounds / estimate)))
        if self.synchronize is not None:
            self.block = min(math.ceil(BLOCK_SECONDS / estimate), MAX_STEPS_PER_ROUND)
        self.blocks = math.ceil(wanted / self.block)
        self.untimed = self.block if estimate < COLD_SECONDS else 0
        # On a device a block of steps is long beside what a reading evicts.
        self.resume = self.step if estimate < STRETCH and self.synchronize is None else None

    def round(self) -> None:
        self.step.prepare()
        before = None if self.speed_probe is None else self.speed_probe.settle()
        for _ in range(self.untimed):
            self.step()
        self.times.append(watched(self.speed_probe, self.seconds, self.blocks, before=before, resume=self.resume))

    def seconds(self) -> float:
        """Seconds per step over a block of steps, the device idle before and after."""
        return block_seconds(self.step, self.block, self.synchronize, self.clock) / self.block

    def summary(self) -> Measurement | Exception:
        everything = list(chain.from_iterable(self.times))
        ordered = sorted(seconds for seconds, _ in at_usual_speed(self.speed_probe, everything))
        half = len(self.times) // 2
        first, second = (
            _median(at_usual_speed(self.speed_probe, list(chain.from_iterable(part))))
            for part in (self.times[:half], self.times[half:])
        )
        if not min(first, second) > 0:
            return TimerError("a timed step took no time by the clock")
        usual = None if self.speed_probe is None else self.speed_probe.usual
        kept = [usual is None or is_alike(reading, usual) for _, reading in everything]
        return Measurement(
            median=percentile(ordered, 0.5), p10=percentile(ordered, 0.1), p90=percentile(ordered, 0.9),
            count=len(ordered) * self.block, repeatability=max(first, second) / min(first, second),
            anyhow=_median(everything), usual=statistics.fmean(kept),
        )  # fmt: skip


def measure_interleaved(
    steps: Sequence[Step], *, synchronize: Callable[[], object] | None = None, clock: Clock = time.perf_counter,
    rounds: int = 5, seconds: float = 1.5, speed_probe: SpeedProbe | None = None,
) -> list[Measurement | Exception]:  # fmt: skip
    """Warm every step up, then time them in ``rounds`` turns, about ``seconds`` per step in all.

    A step too long for that is timed once in each of 3 rounds, which is the least. The results are in the order of
    ``steps``; one that raised gives its exception instead, and does not disturb the others. With a ``speed_probe``, the
    machine's usual speed is waited for, and up to twice as many steps are timed where it is not kept.
    """
    turns = [_Turn(step, synchronize, clock, speed_probe) for step in steps]
    for turn in turns:
        turn.attempt(partial(turn.plan, rounds, seconds))
    for number in range(rounds):
        for turn in turns:
            if number < turn.rounds:
                turn.attempt(turn.round)
    return [turn.failure or turn.summary() for turn in turns]


def _median(timed: Sequence[tuple[float, float]]) -> float:
    return statistics.median(seconds for seconds, _ in timed)
