"""Feels at which pace the machine runs just now, so that what is timed at another than its usual one can be left out.

A virtual machine shares its cores with neighbours that none of its own counters shows. While one keeps the other half
of a core busy, whatever is bound by instructions (Python, dispatch, additions) takes twice its time, a matrix product a
sixth more, a large copy not more at all: no single factor describes that, and it comes and goes within milliseconds. So
a small, fixed amount of such work on all cores, a *reading*, is timed before and after whatever is measured. The usual
reading is the one around which most time was spent: a machine that is mostly disturbed is measured as it mostly is. (With
neighbours on one core or another, or on both, a median falls between the paces, where hardly any time is spent.)
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import torch

from placer.calibration.measuring.timing import Clock

T = TypeVar("T")

#: What the usual reading is called among a profile's rates. Older ones have ``first_speed_probe_seconds``, of readings made of other work.
USUAL_READING = "speed_probe_seconds"

#: A reading in three parts of 15 to 30 microseconds: additions in Python, on the first core; exponentials on all cores, of
#: numbers that stay in their caches; and short sums, before and after which the cores wait for each other. A neighbour
#: on the first core makes all of them half as long again, one on another core the exponentials; and where the host runs
#: this machine's cores far from each other, only the sums take longer, nearly twice their time.
ADDITIONS, EXPONENTIALS, SUMS = 500, 1, 6
#: Numbers for each thread, no fewer than PyTorch gives one; and in a row that is summed, again and again the same one.
GRAIN, ROW = 32768, 1024
#: Of the last two parts, untimed before: what ran last has evicted the numbers, and threads may have gone to sleep.
UNTIMED = 1
#: Seconds of these, else some 40 microseconds, from which on a reading is over at once: another program has a core, and
#: every pass waits for a thread that waits for its turn.
HOPELESS = 1e-3
#: Factor by which a reading may differ from the usual one: nine in ten of one pace are within a twentieth.
ALIKE = 1.1
#: Most seconds that one reading stands for, and steps of the histogram of readings to a factor of e.
LASTING, BINS = 0.1, 50
#: Seconds between two readings at least; what is timed in them takes longer than they do.
STRETCH = 2e-3
#: Steps run untimed after a reading, and seconds of them after which that is over. A reading displaces code and data of what
#: is timed: of networks whose steps take 0.3 to 1 ms, the first step after one takes 1.23 times a plain loop's median,
#: the second 1.08, the third 1.05; a first one of less than 0.1 ms takes 1.6 times as long, one of 2 ms hardly longer.
MOST_RESUMING, RESUMED = 3, 5e-4
#: Share of the time that a machine may run faster than at a reading that is one of its rest all the same: readings scatter.
FASTER = 0.1
#: Seconds to wait for the usual pace at once, and the share of all time that may be spent so.
PATIENCE, WAITING = 0.2, 0.25
#: Times of what was wanted that are measured at most, where some of it was at another pace.
MOST = 2


class SpeedProbe:
    """The readings of one process that runs on ``threads`` cores.

    ``usual``: seconds of the usual reading, where another process found that out. ``work`` is what a reading does.
    """

    def __init__(
        self,
        threads: int,
        *,
        usual: float | None = None,
        work: Callable[[], object] | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._known = usual
        self._numbers = torch.linspace(0.0, 1.0, GRAIN * threads, dtype=torch.float32)
        self._powers = torch.empty_like(self._numbers)
        self._rows = self._numbers[:ROW].expand(GRAIN // ROW * threads, ROW)
        self._sums = self._rows.sum(1)
        self._work = work or self._instructions
        #: Seconds that the machine spent at each pace: waiting is full of readings, a long step has two.
        self._spent: dict[int, float] = defaultdict(float)
        self._born = self._last = clock()
        self._waited = 0.0

    def read(self) -> float:
        """Seconds of one reading: the faster of two, since the first may find its code evicted by what ran last."""
        seconds = self._once()
        if seconds < HOPELESS:
            seconds = min(seconds, self._once())
        now = self._clock()
        self._spent[binned(seconds)] += min(now - self._last, LASTING)
        self._last = now
        return seconds

    def _once(self) -> float:
        before = self._clock()
        self._on_all_cores(UNTIMED, UNTIMED)
        start = self._clock()
        if start - before >= HOPELESS:
            return start - before
        self._work()
        return max(self._clock() - start, 1e-9)

    def _instructions(self) -> None:
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
        """Seconds of a reading at the machine's usual pace: as known, or over the time so far."""
        return densest(self._spent) if self._known is None else self._known

    def is_usual(self, reading: float) -> bool:
        """Whether a reading was about as fast as the usual one."""
        return is_alike(reading, self.usual)

    def is_quiet(self, reading: float) -> bool:
        """Whether the machine was hardly ever faster than at this reading: what disturbs it then can only lengthen."""
        least = binned(reading / ALIKE)
        faster = sum(seconds for step, seconds in self._spent.items() if step < least)
        return faster <= FASTER * sum(self._spent.values())

    def usual_ones(self, found: Sequence[tuple[T, float]]) -> list[tuple[T, float]]:
        """Those of ``found``, answers with their readings, that were timed at the usual pace."""
        usual = self.usual
        return [(answer, reading) for answer, reading in found if is_alike(reading, usual)]

    def settle(self) -> float:
        """Wait for the usual pace, as long as that is worth it; the last reading (seconds)."""
        start = self._clock()
        while True:
            reading = self.read()
            now = self._clock()
            waited = now - start
            out_of_patience = waited >= PATIENCE or self._waited + waited > WAITING * (now - self._born)
            if out_of_patience or self.is_usual(reading):
                self._waited += waited
                return reading

    def fastest(self, seconds: float) -> float:
        """Seconds of the reading of a machine at rest: what most of the fastest tenth of ``seconds`` of readings are like."""
        end = self._clock() + seconds
        readings = [self.read()]
        while self._clock() < end:
            readings.append(self.read())
        return densest(Counter(map(binned, sorted(readings)[: math.ceil(len(readings) * FASTER)])))

    def watch(
        self,
        timed: Callable[[], T],
        count: int,
        *,
        before: float | None = None,
        resume: Callable[[], object] | None = None,
    ) -> list[tuple[T, float]]:
        """What ``timed`` answered, with the less usual of the readings around it: ``count`` at the usual pace if possible.

        Waits for that pace first, unless ``before`` is the reading just before. ``resume`` runs untimed after each reading.
        """
        found: list[tuple[T, float]] = []
        good = 0
        before = self.settle() if before is None else before
        self._resume(resume)
        since = self._clock()
        stretch: list[T] = []
        while good < count and len(found) < MOST * count:
            stretch.append(timed())
            enough = good + len(stretch) >= count or len(found) + len(stretch) >= MOST * count
            if enough or self._clock() - since >= STRETCH:
                after, usual = self.read(), self.usual
                reading = max(before, after, key=lambda reading: abs(math.log(reading / usual)))
                found += [(answer, reading) for answer in stretch]
                good += len(stretch) if is_alike(reading, usual) else 0
                if not enough:
                    self._resume(resume)
                before, since, stretch = after, self._clock(), []
        return found

    def _resume(self, resume: Callable[[], object] | None) -> None:
        """Bring back what a reading evicted."""
        if resume is None:
            return
        start = self._clock()
        for _ in range(MOST_RESUMING):
            resume()
            if self._clock() - start >= RESUMED:
                break


def binned(reading: float) -> int:
    """The step of a histogram of readings that a reading of so many seconds falls in."""
    return round(BINS * math.log(reading))


def densest(spent: Mapping[int, float]) -> float:
    """Seconds of the reading that most others are like: the mean of the fullest window of the histogram ``spent``.

    ``spent`` holds what counts (time, readings) by step of the histogram, and must not be empty.
    """
    steps = sorted(spent)
    width = 2.0 * BINS * math.log(ALIKE)
    most, fullest, total, low = 0.0, range(1), 0.0, 0
    for high, step in enumerate(steps):
        total += spent[step]
        while step - steps[low] > width:
            total -= spent[steps[low]]
            low += 1
        if total > most:
            most, fullest = total, range(low, high + 1)
    inside = [steps[i] for i in fullest]
    return math.exp(sum(step * spent[step] for step in inside) / sum(spent[step] for step in inside) / BINS)


def usual_reading(readings: Iterable[float]) -> float | None:
    """The reading that most of ``readings`` (seconds) are like; None of none, and where the speed_probe was not felt everywhere."""
    seen = list(readings)
    return densest(Counter(map(binned, seen))) if seen and all(reading > 0.0 for reading in seen) else None


def pacing_cores(device: str, threads: int) -> int:
    """Cores whose pace a step depends on: one issues the ops of an accelerator."""
    return threads if device == "cpu" else 1


def is_alike(reading: float, usual: float, within: float = ALIKE) -> bool:
    """Whether two readings differ by no more than a factor, if not given that of one pace."""
    return usual / within <= reading <= usual * within


def watched(
    speed_probe: SpeedProbe | None,
    timed: Callable[[], T],
    count: int,
    *,
    before: float | None = None,
    resume: Callable[[], object] | None = None,
) -> list[tuple[T, float]]:
    """``speed_probe.watch``, or ``count`` answers with readings of 0 seconds where the speed_probe is not felt."""
    if speed_probe is None:
        return [(timed(), 0.0) for _ in range(count)]
    return speed_probe.watch(timed, count, before=before, resume=resume)


def at_usual_pace(speed_probe: SpeedProbe | None, found: Sequence[tuple[T, float]]) -> list[tuple[T, float]]:
    """Those of ``found`` that were timed at the usual pace; all where none were, or where the speed_probe is not felt."""
    return (speed_probe.usual_ones(found) if speed_probe is not None else []) or list(found)
