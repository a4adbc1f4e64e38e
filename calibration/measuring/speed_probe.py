"""Notices that the machine's speed changed, so that what was timed at another speed can be left out.

A virtual machine shares its cores with other machines, which none of its own counters shows. While one of them uses the
other half of a core, what is bound by instructions (Python, dispatch, additions) takes twice its time, a matrix product
a sixth more, a large copy no more at all. No single factor corrects that, and it comes and goes within milliseconds. So
the speed probe times a small, fixed amount of such work on all cores before and after every measurement: a *reading*,
in seconds.

The *usual* reading is the one near which the machine spent most of the time: the mode of the readings and not their
median. With contention on one core, on another, or on both, the median lies between these speeds, where hardly any time
is spent. A machine that is contended most of the time is measured as contended.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import torch

from placer.calibration.measuring.timing import Clock, run_for

T = TypeVar("T")

#: Name of the usual reading among a profile's rates.
USUAL_READING = "speed_probe_seconds"
#: Factor by which two readings at one speed may differ: nine in ten are within a twentieth of the usual one.
ALIKE = 1.1
#: Bins of the histogram of readings per factor of e.
BINS = 50


def is_alike(reading: float, usual: float, within: float = ALIKE) -> bool:
    """Whether two readings (seconds) differ by no more than the factor ``within``."""
    return usual / within <= reading <= usual * within


def binned(reading: float) -> int:
    """The histogram's bin for a reading (seconds)."""
    return round(BINS * math.log(reading))


def densest(weights: Mapping[int, float]) -> float:
    """The reading (seconds) that most others are like: the weighted mean of the histogram's fullest window.

    ``weights`` holds seconds spent, or the number of readings, by bin. It must not be empty. The window is as wide as
    ``ALIKE`` on both sides.
    """
    bins = sorted(weights)
    width = 2.0 * BINS * math.log(ALIKE)
    most, fullest, total, low = 0.0, range(1), 0.0, 0
    for high, last in enumerate(bins):
        total += weights[last]
        while last - bins[low] > width:
            total -= weights[bins[low]]
            low += 1
        if total > most:
            most, fullest = total, range(low, high + 1)
    inside = [bins[i] for i in fullest]
    return math.exp(sum(b * weights[b] for b in inside) / sum(weights[b] for b in inside) / BINS)


def usual_reading(readings: Iterable[float]) -> float | None:
    """The reading (seconds) that most others are like; None without any, or if one is 0: taken without a probe."""
    seen = list(readings)
    return densest(Counter(map(binned, seen))) if seen and all(reading > 0.0 for reading in seen) else None


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


#: Seconds between two readings at least, so that they take less time than what is timed between them.
STRETCH = 2e-3
#: Untimed steps after a reading, at most, and seconds of them that are enough. A reading evicts code and data of what
#: is timed: of networks whose steps take 0.3 to 1 ms, the first step after one takes 1.23 times a plain loop's median,
#: the second 1.08, the third 1.05. A step of less than 0.1 ms takes 1.6 times as long, one of 2 ms hardly longer.
MOST_RESUMING, RESUMED = 3, 5e-4
#: Where some steps ran at another speed, at most this many times the wanted number is timed.
MOST_REPEATS = 2


def watched(
    speed_probe: SpeedProbe | None, timed: Callable[[], T], count: int, *, before: float | None = None,
    resume: Callable[[], object] | None = None,
) -> list[tuple[T, float]]:  # fmt: skip
    """Results of ``timed``, each with the less usual of the readings (seconds) around it.

    At least ``count`` of them are at the usual speed where that is possible. The usual speed is waited for first,
    unless ``before`` is the reading just taken. ``resume`` runs untimed after each reading. Without a ``speed_probe``
    there are ``count`` results with readings of 0.
    """
    if speed_probe is None:
        return [(timed(), 0.0) for _ in range(count)]
    clock = speed_probe.clock
    found: list[tuple[T, float]] = []
    good, wanted = 0, count > 0
    before = speed_probe.settle() if before is None else before
    while wanted:
        if resume is not None:
            run_for(resume, RESUMED, MOST_RESUMING, clock)
        stretch: list[T] = []
        start = clock()
        while wanted and (not stretch or clock() - start < STRETCH):
            stretch.append(timed())
            wanted = good + len(stretch) < count and len(found) + len(stretch) < MOST_REPEATS * count
        after, usual = speed_probe.read(), speed_probe.usual
        reading = max(before, after, key=lambda reading: abs(math.log(reading / usual)))
        found += [(result, reading) for result in stretch]
        good += len(stretch) if is_alike(reading, usual) else 0
        wanted = good < count and len(found) < MOST_REPEATS * count
        before = after
    return found


def at_usual_speed(speed_probe: SpeedProbe | None, timed: Sequence[tuple[T, float]]) -> list[tuple[T, float]]:
    """The pairs of a result and its reading that are at the usual speed; all if none are, or without a probe."""
    if speed_probe is None:
        return list(timed)
    usual = speed_probe.usual
    return [(result, reading) for result, reading in timed if is_alike(reading, usual)] or list(timed)
