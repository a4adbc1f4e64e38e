"""Takes readings: times a small, fixed amount of work on all cores."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import torch

from placer.calibration.measuring.speed_probe.readings import ALIKE, binned, densest, is_alike
from placer.calibration.measuring.timing import Clock

#: The work has three parts of 15 to 30 microseconds: additions in Python, on the first core; exponentials on all cores,
#: of numbers that stay in their caches; and short sums, before and after which the cores wait for each other.
#: Contention on the first core makes all of them half as long again, on another core the exponentials. Where the host
#: runs this machine's cores far from each other, only the sums take longer, nearly twice their time.
ADDITIONS, EXPONENTIALS, SUMS = 500, 1, 6
#: Numbers per thread, no fewer than PyTorch gives one; and numbers in the row that is summed again and again.
GRAIN, ROW = 32768, 1024
#: Untimed runs of the last two parts before a reading: the code before has evicted the numbers, and threads may sleep.
UNTIMED = 1
#: Seconds of these untimed runs (usually some 40 microseconds) from which on a reading ends at once: another program
#: holds a core, and every run waits for a thread that waits for its turn.
HOPELESS = 1e-3
#: Seconds that one reading stands for, at most.
LASTING = 0.1
#: Share of the time in which a quiet machine may seem faster than at a reading, since readings scatter.
FASTER = 0.1
#: Seconds to wait for the usual speed in one go, and the share of all time that may be spent waiting.
PATIENCE, WAITING = 0.2, 0.25


class SpeedProbe:
    """Takes readings in one process that runs on ``threads`` cores, and knows which one is usual.

    ``usual``: seconds of the usual reading, if it is known already. ``work`` replaces the fixed work.
    """

    def __init__(
        self, threads: int, *, usual: float | None = None, work: Callable[[], object] | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:  # fmt: skip
        self.clock = clock
        self._known = usual
        self._numbers = torch.linspace(0.0, 1.0, GRAIN * threads, dtype=torch.float32)
        self._powers = torch.empty_like(self._numbers)
        self._rows = self._numbers[:ROW].expand(GRAIN // ROW * threads, ROW)
        self._sums = self._rows.sum(1)
        self._work = work or self._fixed_work
        #: Seconds that the machine spent at each reading, by bin. Counting readings would not do: waiting is full of
        #: them, and a long step has two.
        self._spent: dict[int, float] = defaultdict(float)
        self._born = self._last = clock()
        self._waited = 0.0

    def read(self) -> float:
        """Take a reading (seconds): the faster of two, since other code may have evicted what the first one uses."""
        seconds = self._once()
        if seconds < HOPELESS:
            seconds = min(seconds, self._once())
        now = self.clock()
        self._spent[binned(seconds)] += min(now - self._last, LASTING)
        self._last = now
        return seconds

    def _once(self) -> float:
        before = self.clock()
        self._on_all_cores(UNTIMED, UNTIMED)
        start = self.clock()
        if start - before >= HOPELESS:
            return start - before
        self._work()
        return max(self.clock() - start, 1e-9)

    def _fixed_work(self) -> None:
        """Work that waits for nothing but the cores: in Python, then in all threads."""
        total = 0
        for number in range(ADDITIONS):
            total += number * number
        self._on_all_cores(EXPONENTIALS, SUMS)

    def _on_all_cores(self, exponentials: int, sums: int) -> None:
        for _ in range(exponentials):
            torch.exp(self._numbers, out=self._powers)
        for _ in range(sums):
            torch.sum(self._rows, 1, out=self._sums)

    @property
    def usual(self) -> float:
        """Seconds of the usual reading: the known one, or the one near which most of the time so far was spent."""
        return densest(self._spent) if self._known is None else self._known

    def is_usual(self, reading: float) -> bool:
        return is_alike(reading, self.usual)

    def is_quiet(self, reading: float) -> bool:
        """Whether the machine is quiet at this reading (seconds): hardly ever faster, so that noise only lengthens."""
        least = binned(reading / ALIKE)
        faster = sum(seconds for b, seconds in self._spent.items() if b < least)
        return faster <= FASTER * sum(self._spent.values())

    def settle(self) -> float:
        """Wait for the usual speed as long as that is worth it; returns the last reading (seconds)."""
        start = self.clock()
        while True:
            reading = self.read()
            now = self.clock()
            waited = now - start
            out_of_patience = waited >= PATIENCE or self._waited + waited > WAITING * (now - self._born)
            if out_of_patience or self.is_usual(reading):
                self._waited += waited
                return reading

    def quiet_reading(self, seconds: float) -> float:
        """The quiet machine's reading (seconds): what most of the fastest tenth are like in ``seconds`` of readings."""
        end = self.clock() + seconds
        readings = [self.read()]
        while self.clock() < end:
            readings.append(self.read())
        return densest(Counter(map(binned, sorted(readings)[: math.ceil(len(readings) * FASTER)])))


def probed_cores(device: str, threads: int) -> int:
    """Cores whose speed a step on ``device`` depends on: on an accelerator the one that issues its ops."""
    return threads if device == "cpu" else 1
