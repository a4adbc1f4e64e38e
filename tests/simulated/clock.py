"""Time: the host's clock, virtual or real, and the device's queue of kernels."""

from __future__ import annotations

import time
from collections import deque


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


class Queue:
    """Kernels run one after another. ``free_at`` is the moment by which everything handed over so far will have run."""

    def __init__(self, clock: Clock, depth: int) -> None:
        self.clock = clock
        self.depth = depth
        self.free_at = 0.0
        self.launched = 0
        self._ends: deque[float] = deque()

    def launch(self, seconds: float, *, issue: float, latency: float) -> None:
        """Hand over a kernel of ``seconds``: the host goes on after ``issue``, or when the queue has room again."""
        self.clock.spend(issue)
        while self._ends and self._ends[0] <= self.clock.now:
            self._ends.popleft()
        if len(self._ends) >= self.depth:
            self.clock.wait_until(self._ends.popleft())
        self.free_at = max(self.free_at, self.clock.now + latency) + seconds
        self._ends.append(self.free_at)
        self.launched += 1

    def wait(self) -> None:
        """Until everything has run."""
        self.clock.wait_until(self.free_at)
        self._ends.clear()
