"""The host's clock, virtual or real."""

from __future__ import annotations

import time


class VirtualClock:
    """Time that passes only when somebody spends it, so that what is measured with it is exact and costs nothing.

    Reading it takes a tick: a timer that waits for its clock to move would wait for ever otherwise.
    """

    TICK = 2e-8

    def __init__(self) -> None:
        self.now = 1.0

    def __call__(self) -> float:
        self.now += self.TICK
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def wait_until(self, moment: float) -> None:
        self.now = max(self.now, moment)


class RealClock:
    """``time.perf_counter``; what is spent is really waited for, in a loop, as sleeping is too coarse."""

    @property
    def now(self) -> float:
        return time.perf_counter()

    def __call__(self) -> float:
        return time.perf_counter()

    def spend(self, seconds: float) -> None:
        self.wait_until(self.now + seconds)

    def wait_until(self, moment: float) -> None:
        while (left := moment - time.perf_counter()) > 0.0:
            if left > 1e-2:
                time.sleep(left / 2)


Clock = VirtualClock | RealClock
