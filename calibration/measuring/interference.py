"""Notices other programs of this system on the cores: what is timed beside them says nothing about the machine.

A parallel op waits for its slowest thread. One other program on one core makes an op of microseconds last as long as
the scheduler's turns, which are milliseconds; no median hides that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

#: Cores' worth of other programs' work above which a measurement is disturbed: a tenth of one core.
DISTURBED = 0.1
#: Processor seconds of others that are background noise: the system counts in ticks of a hundredth of a second.
TICKS = 0.025


@dataclass(frozen=True)
class Load:
    """Processor seconds spent so far by all programs and by this process, and the seconds on the wall clock."""

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
        """Whether other programs took a noticeable part of the cores since ``earlier``."""
        foreign = (self.everybody - earlier.everybody) - (self.own - earlier.own)
        return foreign > max(DISTURBED * (self.wall - earlier.wall), TICKS)
