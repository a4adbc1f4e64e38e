"""Notices other programs on the cores: what is timed beside them says nothing about the machine.

A parallel op waits for its slowest thread. One busy neighbour on one core makes an op of microseconds last as long as
the scheduler's turns, milliseconds; no median hides that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

#: Cores' worth of foreign work above which a measurement is disturbed: a tenth of one core.
DISTURBED = 0.1
#: The system counts in ticks of a hundredth of a second: fewer than this many are background noise.
TICKS = 0.025


@dataclass(frozen=True)
class Load:
    """Processor seconds spent so far: by everybody, by this process, and the time on the wall."""

    everybody: float
    own: float
    wall: float

    @classmethod
    def now(cls) -> Load:
        """As counted since the machine and the process started."""
        times = psutil.cpu_times()
        everybody = sum(getattr(times, name, 0.0) for name in ("user", "system", "nice", "irq", "softirq", "steal"))
        return cls(everybody, time.process_time(), time.perf_counter())

    def disturbed_since(self, earlier: Load) -> bool:
        """Whether other programs took a noticeable part of the cores in between."""
        foreign = (self.everybody - earlier.everybody) - (self.own - earlier.own)
        return foreign > max(DISTURBED * (self.wall - earlier.wall), TICKS)
