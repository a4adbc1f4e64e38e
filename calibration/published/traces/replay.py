"""Replays a trace on the two clocks that pricing uses: the trace says what is issued when, the clocks say how long.

The host's time of each top-level op, and of what lies before it, is the trace's own without the host's waits for the
device: those are what the clocks find out. Kernel times, the delay of a launch and the gap between queued kernels are
the trace's, too. Nothing is adjusted to a file.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from placer.calibration.measuring.events import Assigned, RawEvent
from placer.calibration.published.traces.device_record import DeviceRecord
from placer.calibration.published.traces.steps import Steps
from placer.pricing import QUEUE_DEPTH, Clocks, ScheduleItem

#: Calls that return when the device is done with all that was issued before, and those that may wait for a part of it.
_WAITS_FOR_ALL = re.compile(r"(?:cuda|hip)DeviceSynchronize|cuCtxSynchronize|(?:cuda|hip)Free$")
_WAITS_FOR_SOME = re.compile(r"(?:cuda|cu|hip)(?:Stream|Event)Synchronize")
#: Such a call that returns this long before all work is done waited for a part of it: nanoseconds.
_PART = 2000
_SECOND = 1e-9


@dataclass(frozen=True)
class Replay:
    """The mean step of a trace as it shows it and as the clocks replay it, in seconds.

    ``host`` is what the host alone takes, were it never to wait for the device; ``device`` the time in which the device
    is busy; ``starved`` the time in which the trace shows no work of the device though some waits in its queue: what
    runs then is not in the trace.
    """

    shown: float
    replayed: float
    host: float
    device: float
    starved: float

    @property
    def ratio(self) -> float:
        """Replayed over shown."""
        return self.replayed / self.shown


def replay(found: Assigned, steps: Steps) -> Replay:
    """Replay all steps of a trace, one after the other."""
    begin, end = steps.marks[0], steps.marks[-1]
    schedule = _Schedule(found, DeviceRecord.of(found), steps)
    device = schedule.device
    clocks = Clocks(device.delay() * _SECOND, depth=schedule.depth)
    for ends in device.unfinished(begin):
        clocks.device = (ends - begin) * _SECOND
        clocks.ends.append(clocks.device)
    host = 0.0
    for item in schedule.items():
        clocks.play(item)
        host += item.issue + item.alone
    count = len(steps.marks) - 1
    times = (end - begin, device.busy(begin, end), device.starved(begin, end))
    shown, busy, starved = (time * _SECOND / count for time in times)
    return Replay(shown, clocks.host / count, host / count, busy, starved)


@dataclass
class _Schedule:
    """Cuts the host's time at both ends of every top-level op and of every wait; each piece is an item."""

    found: Assigned
    device: DeviceRecord
    steps: Steps
    #: Calls in which the host waits for the device, by their start.
    waits: dict[int, RawEvent] = field(init=False)
    #: Kernels that a queue holds.
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        # Threads that run ops are the host's: autograd's is one, for which the others wait.
        threads = {self.steps.thread, *(event.thread for event in self.found.host if event.kind == "op")}
        calls = (call for made in self.found.calls.values() for call in made)
        self._calls = [call for call in calls if call.thread in threads]
        self.waits = {call.start_ns: call for call in self._calls if self._waits(call)}
        self._gap = self.device.gap()
        # No bound of HIP's queue shows: a trace of an MI300X has 1848 kernels in it, and the host goes on.
        self.depth = sys.maxsize if any(call.name.startswith("hip") for call in self._calls) else QUEUE_DEPTH

    def items(self) -> Iterable[ScheduleItem]:
        """The schedule from the first step's start to the last one's end."""
        ops = [event for event in self.found.host if event.kind == "op"]
        cuts = {moment for event in (*_outermost([*ops, *self._calls]), *self.waits.values())
                for moment in (event.start_ns, event.end_ns)}  # fmt: skip
        begin, end = self.steps.marks[0], self.steps.marks[-1]
        until = 0
        for start, stop in pairwise(sorted({begin, end, *(cut for cut in cuts if begin < cut < end)})):
            wait = self.waits.get(start)
            if wait is not None:
                until = wait.end_ns
                yield ScheduleItem(waits=True, alone=self._alone(wait) * _SECOND)
            launched = range(bisect_left(self.device.starts, start), bisect_left(self.device.starts, stop))
            yield self._item(0 if start < until else stop - start, launched)

    def _item(self, issue: int, launched: range) -> ScheduleItem:
        """What the host does in ``issue`` nanoseconds, with the launches of these numbers among it."""
        launches = [i for i in launched if self.device.launches[i].start_ns not in self.waits]
        numbers = [self.device.launches[i].number for i in launches]
        busy = sum(self.device.adds[number] for number in numbers)
        kernels = sum(len(self.device.work[number]) for number in numbers)
        return ScheduleItem(
            max(issue - sum(map(self._blocked, launches)), 0) * _SECOND,
            (busy + self._gap * kernels) * _SECOND,
            max(len(launches), 1),
        )

    def _blocked(self, number: int) -> int:
        """Nanoseconds for which the queue was full when a launch was called."""
        if number < self.depth:
            return 0
        call = self.device.launches[number]
        return min(max(self.device.ends[number - self.depth] - call.start_ns, 0), call.end_ns - call.start_ns)

    def _waits(self, call: RawEvent) -> bool:
        """Whether a call returns when the device is done: a wait, or a copy that runs while its call does."""
        copies = self.device.work.get(call.number, ())
        if copies:
            shared = sum(max(min(e.end_ns, call.end_ns) - max(e.start_ns, call.start_ns), 0) for e in copies)
            return all(e.kind == "memcpy" for e in copies) and 2 * shared > sum(e.end_ns - e.start_ns for e in copies)
        if _WAITS_FOR_SOME.match(call.name):
            return self.device.ready(call.start_ns) <= call.end_ns + _PART
        return _WAITS_FOR_ALL.match(call.name) is not None

    def _alone(self, call: RawEvent) -> int:
        """Nanoseconds of a waiting call after the device was done: its return, or a copy of its own."""
        done = min(max(self.device.ready(call.start_ns), call.start_ns), call.end_ns)
        return call.end_ns - done


def _outermost(events: Sequence[RawEvent]) -> Iterable[RawEvent]:
    """The events that no other one of their thread encloses."""
    until: dict[int, int] = {}
    for event in sorted(events, key=lambda e: (e.start_ns, -e.end_ns)):
        if event.start_ns >= until.get(event.thread, 0):
            until[event.thread] = event.end_ns
            yield event
