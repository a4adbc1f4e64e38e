"""Which readings of the speed probe are alike, and which one is usual."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

#: Name of the usual reading among a profile's rates.
USUAL_READING = "speed_probe_seconds"
#: Factor by which two readings at one speed may differ: nine in ten are within a twentieth of the usual one.
ALIKE = 1.1
#: Bins of the histogram of readings per factor of e.
BINS = 50


def is_alike(reading: float, usual: float, within: float = ALIKE) -> bool:
    """Whether two readings differ by no more than the factor ``within``."""
    return usual / within <= reading <= usual * within


def binned(reading: float) -> int:
    """The histogram's bin for a reading (seconds)."""
    return round(BINS * math.log(reading))


def densest(weights: Mapping[int, float]) -> float:
    """The reading (seconds) that most others are like: the weighted mean of the histogram's fullest window.

    ``weights`` holds seconds spent, or the number of readings, by bin. It must not be empty. The window is as wide as
    ``ALIKE`` on both sides.
    """
    bins = sorted(weights)
    width = 2.0 * BINS * math.log(ALIKE)
    most, fullest, total, low = 0.0, range(1), 0.0, 0
    for high, last in enumerate(bins):
        total += weights[last]
        while last - bins[low] > width:
            total -= weights[bins[low]]
            low += 1
        if total > most:
            most, fullest = total, range(low, high + 1)
    inside = [bins[i] for i in fullest]
    return math.exp(sum(b * weights[b] for b in inside) / sum(weights[b] for b in inside) / BINS)


def usual_reading(readings: Iterable[float]) -> float | None:
    """The reading (seconds) that most others are like; None without any, or if one is 0: taken without a probe."""
    seen = list(readings)
    return densest(Counter(map(binned, seen))) if seen and all(reading > 0.0 for reading in seen) else None
