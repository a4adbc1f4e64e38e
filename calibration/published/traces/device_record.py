"""What a trace shows of its device: when each launch's work ran, how late it began, and for how long the device ran."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from placer.calibration.measuring.events import Assigned, RawEvent


@dataclass(frozen=True)
class DeviceRecord:
    """The launches of a trace in order, and the device's work by the number of its launch. Times in nanoseconds.

    A second stream is no second queue: work ``adds`` the time in which no work that began earlier still ran, so that
    all of it adds up to the time in which the device was busy.
    """

    launches: tuple[RawEvent, ...]
    work: Mapping[int, Sequence[RawEvent]]
    #: Work that was launched before the trace began: its launch is not recorded.
    before: tuple[RawEvent, ...]

    @classmethod
    def of(cls, found: Assigned) -> DeviceRecord:
        """The record of all the work in a trace."""
        calls = {call.number: call for made in found.calls.values() for call in made}
        work: dict[int, list[RawEvent]] = defaultdict(list)
        before = []
        for event in found.device():
            if event.number in calls:
                work[event.number].append(event)
            else:
                before.append(event)
        launches = sorted((calls[number] for number in work), key=lambda call: call.start_ns)
        return cls(tuple(launches), work, tuple(before))

    @cached_property
    def in_order(self) -> list[RawEvent]:
        """All work in the order of its start."""
        return sorted((*self.before, *(e for w in self.work.values() for e in w)), key=lambda e: e.start_ns)

    @cached_property
    def _horizons(self) -> list[int]:
        """Until when work that began before each of ``in_order`` runs."""
        return [0, *accumulate((e.end_ns for e in self.in_order), max)][:-1]

    @cached_property
    def adds(self) -> dict[int, int]:
        """What the work of each launch adds to the time in which the device is busy."""
        result: dict[int, int] = defaultdict(int)
        for event, horizon in zip(self.in_order, self._horizons, strict=True):
            result[event.number] += max(event.end_ns - max(event.start_ns, horizon), 0)
        return result

    def busy(self, begin: int, end: int) -> int:
        """The time between two moments in which the device is busy."""
        pairs = zip(self.in_order, self._horizons, strict=True)
        return sum(max(min(e.end_ns, end) - max(e.start_ns, horizon, begin), 0) for e, horizon in pairs)

    def delay(self) -> float:
        """The median time from the end of a launch to the start of its work on an idle device."""
        return _median(start - call.end_ns for call, start, horizon in self._begun() if 0 < horizon < call.start_ns)

    def gap(self) -> float:
        """The median pause between work that waited in the queue and the work before it."""
        ready = self.delay()
        return _median(
            start - horizon
            for call, start, horizon in self._begun()
            if call.end_ns + ready < horizon <= start
        )

    def starved(self, begin: int, end: int) -> int:
        """The time between two moments in which nothing runs though work waits in the queue, beyond the usual delay."""
        delay = round(self.delay())
        pauses = ((max(horizon, call.end_ns + delay), start) for call, start, horizon in self._begun())
        return sum(max(min(start, end) - max(free, begin), 0) for free, start in pauses)

    def _begun(self) -> Iterator[tuple[RawEvent, int, int]]:
        """(launch, start of its work, end of all work that began earlier), as far as the launch is recorded."""
        calls = {call.number: call for call in self.launches}
        for event, horizon in zip(self.in_order, self._horizons, strict=True):
            if event.number in calls:
                yield calls[event.number], event.start_ns, horizon

    @cached_property
    def starts(self) -> list[int]:
        """When each launch was called."""
        return [call.start_ns for call in self.launches]

    @cached_property
    def ends(self) -> list[int]:
        """When each launch's work ended."""
        return [max(event.end_ns for event in self.work[call.number]) for call in self.launches]

    @cached_property
    def _ready(self) -> list[int]:
        return list(accumulate(self.ends, max, initial=max((e.end_ns for e in self.before), default=0)))

    def ready(self, moment: int) -> int:
        """When all work that was launched before ``moment`` has ended."""
        return self._ready[bisect_left(self.starts, moment)]

    def unfinished(self, moment: int) -> list[int]:
        """The ends of all work that was launched before ``moment`` and runs on after it."""
        launched = [e for call in self.launches[: bisect_left(self.starts, moment)] for e in self.work[call.number]]
        return sorted(event.end_ns for event in (*self.before, *launched) if event.end_ns > moment)


def _median(values: Iterator[int]) -> float:
    found = list(values)
    return max(float(statistics.median(found)), 0.0) if found else 0.0
