"""The device's side of time: kernels run one after another, behind a queue of bounded length."""

from __future__ import annotations

from collections import deque

from simulated.clock import Clock


class Queue:
    """``free_at`` is the moment by which everything handed over so far will have run."""

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
