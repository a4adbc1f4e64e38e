"""The two clocks of a step on an accelerator: the host issues work, the device executes it behind a bounded queue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

#: Kernels that a queue of CUDA holds before the host blocks: the most that wait or run in profiler traces of a V100.
QUEUE_DEPTH = 1022


class ScheduleItem(NamedTuple):
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

    def play(self, *items: ScheduleItem) -> tuple[float, float]:
        """Advance both clocks by items in order.

        Returns when the first kernel of the last one starts, and when all of its kernels are issued.
        """
        host, device, launch, depth, ends = self.host, self.device, self.launch, self.depth, self.ends
        first = issued = host
        for issue, seconds, kernels, waits, alone in items:
            if seconds <= 0.0:
                first = host = host + issue
            else:
                each, busy, left = issue / kernels, seconds / kernels, kernels
                while left:  # this loop runs some thousand times a step: neither range nor max
                    if len(ends) >= depth:
                        room = ends.popleft()
                        host = room if room > host else host
                    host += each
                    start = host + launch
                    start = start if start > device else device
                    if left == kernels:
                        first = start
                    device = start + busy
                    ends.append(device)
                    left -= 1
            issued = host
            if waits:
                host = device = max(host, device) + alone
            else:
                host += alone
        self.host, self.device = host, device
        return first, issued
