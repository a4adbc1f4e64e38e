"""Times what a rate is made of, within its share of the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from placer.calibration.measuring.timing import Clock, measure

#: Shares that the time for all rates of a device is divided into.
SHARES = 13


@dataclass(frozen=True)
class RateTimer:
    """Times functions on one device, each in about one share of ``total_seconds``.

    ``synchronize`` waits for the device; None on the CPU.
    """

    synchronize: Callable[[], None] | None
    total_seconds: float
    clock: Clock

    @property
    def share(self) -> float:
        """Seconds that one rate may take."""
        return self.total_seconds / SHARES

    def __call__(self, fn: Callable[[], object], shares: float = 1.0, *, best: bool = False) -> float:
        """Median seconds of ``fn()``, or (``best``) their 10th percentile.

        The latter is for what a device can do: threads that have not spread over the cores yet are no part of that.
        """
        timing = measure(fn, synchronize=self.synchronize, max_seconds=self.share * shares, clock=self.clock)
        return timing.p10 if best else timing.median
