"""Times something between readings, and tells what ran at the usual speed from the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from placer.calibration.measuring.speed_probe.probe import SpeedProbe
from placer.calibration.measuring.speed_probe.readings import is_alike
from placer.calibration.measuring.timing import run_for

T = TypeVar("T")

#: Seconds between two readings at least, so that they take less time than what is timed between them.
STRETCH = 2e-3
#: Untimed steps after a reading, at most, and seconds of them that are enough. A reading evicts code and data of what
#: is timed: of networks whose steps take 0.3 to 1 ms, the first step after one takes 1.23 times a plain loop's median,
#: the second 1.08, the third 1.05. A step of less than 0.1 ms takes 1.6 times as long, one of 2 ms hardly longer.
MOST_RESUMING, RESUMED = 3, 5e-4
#: Where some steps ran at another speed, at most this many times the wanted number is timed.
MOST_REPEATS = 2


def watched(
    speed_probe: SpeedProbe | None, timed: Callable[[], T], count: int, *, before: float | None = None,
    resume: Callable[[], object] | None = None,
) -> list[tuple[T, float]]:  # fmt: skip
    """Results of ``timed``, each with the less usual of the readings (seconds) around it.

    At least ``count`` of them are at the usual speed where that is possible. The usual speed is waited for first,
    unless ``before`` is the reading just taken. ``resume`` runs untimed after each reading. Without a ``speed_probe``
    there are ``count`` results with readings of 0.
    """
    if speed_probe is None:
        return [(timed(), 0.0) for _ in range(count)]
    clock = speed_probe.clock
    found: list[tuple[T, float]] = []
    good = 0
    before = speed_probe.settle() if before is None else before
    # Brings back the code and data that a reading evicted.
    again = partial(run_for, resume or (lambda: None), RESUMED, MOST_RESUMING if resume else 0, clock)
    again()
    start = clock()
    stretch: list[T] = []
    while good < count and len(found) < MOST_REPEATS * count:
        stretch.append(timed())
        enough = good + len(stretch) >= count or len(found) + len(stretch) >= MOST_REPEATS * count
        if enough or clock() - start >= STRETCH:
            after, usual = speed_probe.read(), speed_probe.usual
            reading = max(before, after, key=lambda reading: abs(math.log(reading / usual)))
            found += [(result, reading) for result in stretch]
            good += len(stretch) if is_alike(reading, usual) else 0
            if not enough:
                again()
            before, start, stretch = after, clock(), []
    return found


def at_usual_speed(speed_probe: SpeedProbe | None, timed: Sequence[tuple[T, float]]) -> list[tuple[T, float]]:
    """The pairs of a result and its reading that are at the usual speed; all if none are, or without a probe."""
    if speed_probe is None:
        return list(timed)
    usual = speed_probe.usual
    return [(result, reading) for result, reading in timed if is_alike(reading, usual)] or list(timed)
