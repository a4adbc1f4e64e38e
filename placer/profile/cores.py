"""The cores of a CPU that share an op, by what one of them takes: see ``pricing.physics``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

#: Seconds in which a thread ends and another one is made: 13 of them lengthen a small convolution by 0.80 to 0.95 ms on
#: three machines (calibration.journal.xz of the three records calibration/records/nvidia-*, ``cnn 8ef9383a2c6``).
THREAD_SECONDS = 65e-6
#: Sharpness of the bend where threads side by side become as fast as all together.
TOGETHER = 4.0


@dataclass(frozen=True)
class Cores:
    """The cores of a CPU that share an op, where what one core takes is known.

    ``rates`` are those of one core. Of all of them together: ``region_seconds`` starts a loop on them,
    ``thread_seconds`` ends one of their threads and makes another, ``flops_per_second`` they multiply float32 matrices
    with, ``bytes_per_second`` they copy, bytes read and written, where operands are larger than ``cache_bytes``.
    ``pace``: what whole steps take on them, over what the rest says.
    """

    rates: Mapping[str, float]
    region_seconds: float
    flops_per_second: float
    bytes_per_second: float
    cache_bytes: float = 32e6
    thread_seconds: float = THREAD_SECONDS
    pace: float = 1.0

    def exponent(self, threads: int) -> float:
        """p of so many threads are p to this power as fast as one."""
        faster = max(self.flops_per_second / self.rates["flops/float32"], 1.0)
        return min(math.log(faster) / math.log(threads), 1.0) if threads > 1 else 1.0


def alone(rates: Mapping[str, float]) -> Cores:
    """One core of these ``rates``, as all there are."""
    return Cores(rates, 0.0, rates["flops/float32"], rates["bytes_per_second"])


def cores_at(threads: int, known: Mapping[int, Cores]) -> Cores:
    """The cores at any number of threads, by those ``known``: at one thread and at some others.

    Up to the least of them above so many threads, these work side by side until all are as fast as those together. What
    starts a region, and the pace, lie between those of the two. Beyond the most there are no more cores.
    """
    more = min((count for count in known if count >= threads), default=max(known))
    fewer = max((count for count in known if count <= threads), default=more)
    if fewer >= more:
        return known[more]
    way = math.log(threads / fewer) / math.log(more / fewer)
    return _between(known[fewer], known[more], threads / fewer, way)


def _between(fewer: Cores, more: Cores, times: float, way: float) -> Cores:
    """``times`` as many threads as ``fewer``, ``way`` of the way to ``more`` on the scale of their logarithms."""

    def side_by_side(name: str) -> float:
        low, high = getattr(fewer, name), getattr(more, name)
        return float(((times * low) ** -TOGETHER + high**-TOGETHER) ** (-1.0 / TOGETHER))

    return replace(
        more,
        region_seconds=(1.0 - way) * fewer.region_seconds + way * more.region_seconds,
        flops_per_second=side_by_side("flops_per_second"),
        bytes_per_second=side_by_side("bytes_per_second"),
        pace=fewer.pace ** (1.0 - way) * more.pace**way,
    )
