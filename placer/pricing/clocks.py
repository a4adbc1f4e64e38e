"""The two clocks of a step on an accelerator: the host issues work, the device executes it behind a bounded queue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

#: Kernels that a queue of CUDA holds before the host blocks: the most that wait or run in profiler traces of a V100.
QUEUE_DEPTH = 1022


@dataclass(frozen=True, slots=True)
class ScheduleItem:
    """What the host does next. Times in seconds.

    It takes ``issue`` to put ``kernels`` kernels, evenly spread over it, into the device's queue, which executes them
    in ``device``. Where it ``waits``, it waits next until the device is done. ``alone`` is what host and device take
    after that, with nothing else going on: a wait's return, a copy that blocks the host.
    """

    issue: float = 0.0
    device: float = 0.0
    kernels: int = 1
    waits: bool = False
    alone: float = 0.0


@dataclass
class Clocks:
    """Both clocks, in seconds.

    ``launch`` is the time from a kernel's issue to its start on an idle device, ``depth`` the number of kernels that
    the queue holds.
    """

    launch: float = 0.0
    host: float = 0.0
    device: float = 0.0
    depth: int = QUEUE_DEPTH
    #: When the kernels that were issued last end, up to a queue full of them.
    ends: deque[float] = field(default_factory=deque)

    def play(self, item: ScheduleItem) -> tuple[float, float]:
        """Advance both clocks by one item; returns when its first kernel starts, and when all of them are issued."""
        first = self._issue(item)
        issued = self.host
        if item.waits:
            self.host = self.device = max(self.host, self.device) + item.alone
        else:
            self.host += item.alone
        return first, issued

    def _issue(self, item: ScheduleItem) -> float:
        if item.device <= 0.0:
            self.host += item.issue
            return self.host
        issue, seconds = item.issue / item.kernels, item.device / item.kernels
        first = 0.0
        for number in range(item.kernels):
            if len(self.ends) >= self.depth:
                self.host = max(self.host, self.ends.popleft())
            self.host += issue
            start = max(self.device, self.host + self.launch)
            first = first if number else start
            self.device = start + seconds
            self.ends.append(self.device)
        return first
