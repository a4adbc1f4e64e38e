"""Times several steps in turns, so that a machine that slows down slows them all down alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from placer.calibration.measuring.speed_probe import STRETCH, SpeedProbe, at_usual_speed, watched
from placer.calibration.measuring.timing import Clock, percentile
from placer.errors import TimerError

#: Steps timed per round at most: more add nothing.
MAX_STEPS_PER_ROUND = 200
#: An accelerator is waited for once per block of at least this many seconds; a wait costs about 10 microseconds.
BLOCK_SECONDS = 2e-3
#: Steps longer than this (seconds) fill the caches themselves: no untimed step runs after another workload's.
COLD_SECONDS = 0.3
MIN_ROUNDS = 3


class Timed(Protocol):
    """A step that can be timed; ``prepare`` runs untimed before each round."""

    def prepare(self) -> None: ...
    def __call__(self) -> object: ...


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
    step: Timed
    rounds: int = 0
    steps: int = 1
    block: int = 1
    untimed: int = 0
    resume: Timed | None = None
    times: list[list[tuple[float, float]]] = field(default_factory=list)
    failure: Exception | None = None


def measure_interleaved(
    steps: Sequence[Timed],
    *,
    synchronize: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter,
    rounds: int = 5,
    seconds: float = 1.5,
    speed_probe: SpeedProbe | None = None,
) -> list[Measurement | Exception]:
    """Warm every step up, then time them in ``rounds`` turns, about ``seconds`` per step in all.

    A step too long for that is timed once in each of 3 rounds. The results are in the order of ``steps``; one that
    raised gives its exception instead, and does not disturb the others. With a ``speed_probe``, the machine's usual
    speed is waited for, and up to twice as many steps are timed where it is not kept.
    """
    if rounds < MIN_ROUNDS or not seconds > 0:
        raise ValueError(f"at least {MIN_ROUNDS} rounds and a time above 0 are needed, got {rounds} and {seconds}")
    turns = [_Turn(step) for step in steps]
    for turn in turns:
        _guarded(turn, lambda t: _plan(t, synchronize, clock, rounds, seconds))
    for number in range(rounds):
        for turn in turns:
            if turn.failure is None and number < turn.rounds:
                _guarded(turn, lambda t: _round(t, synchronize, clock, speed_probe))
    return [turn.failure or _summary(turn, speed_probe) for turn in turns]


def _guarded(turn: _Turn, action: Callable[[_Turn], None]) -> None:
    try:
        action(turn)
    except Exception as error:  # noqa: BLE001  one workload that fails (no memory, a bug of its own) must not end the run
        turn.failure = error


def _plan(turn: _Turn, synchronize: Callable[[], object] | None, clock: Clock, rounds: int, seconds: float) -> None:
    """Warm up (the first calls select kernels and grow allocators), and spread the time over the rounds."""
    turn.step.prepare()
    turn.step()
    estimate = _block(turn.step, 1, synchronize, clock)
    for _ in range(4):
        if estimate < BLOCK_SECONDS * 5:
            estimate = min(estimate, _block(turn.step, 1, synchronize, clock))
    if estimate <= 0:
        raise TimerError("a whole step took no time by the clock")
    turn.rounds = rounds if estimate * rounds <= seconds else MIN_ROUNDS
    wanted = max(1, min(MAX_STEPS_PER_ROUND, int(seconds / turn.rounds / estimate)))
    if synchronize is not None:
        turn.block = min(math.ceil(BLOCK_SECONDS / estimate), MAX_STEPS_PER_ROUND)
    turn.steps = math.ceil(wanted / turn.block) * turn.block
    turn.untimed = turn.block if estimate < COLD_SECONDS else 0
    # On a device a block of steps is long beside what a reading evicts.
    turn.resume = turn.step if estimate < STRETCH and synchronize is None else None


def _round(turn: _Turn, synchronize: Callable[[], object] | None, clock: Clock, speed_probe: SpeedProbe | None) -> None:
    turn.step.prepare()
    before = None if speed_probe is None else speed_probe.settle()
    for _ in range(turn.untimed):
        turn.step()
    blocks = turn.steps // turn.block
    turn.times.append(
        watched(speed_probe, lambda: _block(turn.step, turn.block, synchronize, clock), blocks, before=before,
                resume=turn.resume)
    )  # fmt: skip


def _block(step: Timed, count: int, synchronize: Callable[[], object] | None, clock: Clock) -> float:
    """Seconds per step over ``count`` steps, the device idle before and after."""
    if synchronize is not None:
        synchronize()
    start = clock()
    for _ in range(count):
        step()
    if synchronize is not None:
        synchronize()
    return (clock() - start) / count


def _summary(turn: _Turn, speed_probe: SpeedProbe | None) -> Measurement | Exception:
    everything = [timed for times in turn.times for timed in times]
    kept = at_usual_speed(speed_probe, everything)
    half = len(turn.times) // 2
    first, second = (
        _median(at_usual_speed(speed_probe, [timed for times in part for timed in times]))
        for part in (turn.times[:half], turn.times[half:])
    )
    if not min(first, second) > 0:
        return TimerError("a timed step took no time by the clock")
    ordered = sorted(seconds for seconds, _ in kept)
    return Measurement(
        median=percentile(ordered, 0.5),
        p10=percentile(ordered, 0.1),
        p90=percentile(ordered, 0.9),
        count=len(ordered) * turn.block,
        repeatability=max(first, second) / min(first, second),
        anyhow=_median(everything),
        usual=1.0 if speed_probe is None else len(speed_probe.usual_ones(everything)) / len(everything),
    )


def _median(timed: Sequence[tuple[float, float]]) -> float:
    return percentile(sorted(seconds for seconds, _ in timed), 0.5)
