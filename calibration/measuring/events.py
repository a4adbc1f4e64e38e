"""What a profiler records: host events, and the device's work. Finds out which op launched what, and how events nest.

A host event is an op, a range that somebody named (an annotation), or a call of the GPU's runtime library. The device's
work is kernels, copies and fills.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

Kind = Literal["op", "annotation", "runtime", "kernel", "memcpy", "memset"]
ON_DEVICE = ("kernel", "memcpy", "memset")
#: Names of the runtime libraries' functions; those of ops begin in another way ("aten::cumsum", "cudnn_rnn").
_RUNTIME = re.compile(r"(?:cuda|cu|hip)[A-Z]")


@dataclass(frozen=True, slots=True)
class RawEvent:
    """One recorded interval, in nanoseconds.

    ``number`` is an op's own, and of all else that of the runtime call that launched it (a runtime call's own). ``op``
    is the number of the op around the call where the profiler noted it, else 0. ``sequence`` is autograd's, -1 where
    there is none. ``thread`` is the host's, 0 where unknown.
    """

    name: str
    start_ns: int
    end_ns: int
    sequence: int
    thread: int
    number: int
    kind: Kind = "op"
    op: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded interval on the host, in seconds since its step's first event; ``inside``: events nested in it.

    ``device_seconds`` is the time of the ``kernels`` (copies and fills included) that it and the events in it launched.
    """

    name: str
    start: float
    end: float
    sequence: int
    inside: int
    device_seconds: float
    kernels: int = 0


@dataclass(frozen=True)
class Assigned:
    """Who launched what: the device's work by the number of the host event around its launch."""

    host: list[RawEvent]
    work: Mapping[int, list[RawEvent]]

    def within(self, begin: int, end: int, *, without: str = "") -> list[RawEvent]:
        """The host events that start between two moments (nanoseconds); none that is called ``without``."""
        return [event for event in self.host if begin <= event.start_ns < end and event.name != without]

    def nested(self, events: Sequence[RawEvent]) -> list[Event]:
        """Some of the host's events with what is nested in them, and with the work that they launched."""
        work = {event.number: self.work[event.number] for event in events if event.number in self.work}
        seconds = {number: union(some) for number, some in work.items()}
        return nest(events, seconds, {number: len(some) for number, some in work.items()})


def is_runtime_call(name: str) -> bool:
    """Whether a name is a function of CUDA's or HIP's runtime or driver."""
    return _RUNTIME.match(name) is not None


def assign(events: Iterable[RawEvent]) -> Assigned:
    """Assign the device's work to the host event that launched it.

    Work knows the event where the profiler noted it. Otherwise the runtime call of the same number leads to it: the
    innermost event around the call on its thread. Other work is left out.
    """
    host: list[RawEvent] = []
    calls: list[RawEvent] = []
    device: list[RawEvent] = []
    for event in events:
        (calls if event.kind == "runtime" else device if event.kind in ON_DEVICE else host).append(event)
    host.sort(key=lambda e: (e.start_ns, -e.end_ns))
    owner = _owners(host, calls)
    work: dict[int, list[RawEvent]] = defaultdict(list)
    for event in device:
        number = event.op or (owner.get(event.number, 0) if event.number else 0)
        if number:
            work[number].append(event)
    return Assigned(host, work)


def _owners(host: Sequence[RawEvent], calls: Sequence[RawEvent]) -> dict[int, int]:
    """The number of the innermost op around each runtime call, by the call's number; else of an annotation, else 0."""
    owner = {call.number: call.op for call in calls if call.op}
    open_events: dict[int, list[RawEvent]] = defaultdict(list)
    unknown = [call for call in calls if not call.op]
    for event in sorted((*host, *unknown), key=lambda e: (e.start_ns, -e.end_ns, e.kind == "runtime")):
        stack = open_events[event.thread]
        while stack and stack[-1].end_ns <= event.start_ns:
            stack.pop()
        if event.kind == "runtime":
            around = [e for e in stack if e.kind == "op"] or stack
            owner[event.number] = around[-1].number if around else 0
        else:
            stack.append(event)
    return owner


def union(events: Sequence[RawEvent]) -> float:
    """Seconds in which at least one of the events runs: kernels side by side on several streams count once."""
    total, horizon = 0, 0
    for event in sorted(events, key=attrgetter("start_ns")):
        total += max(event.end_ns - max(event.start_ns, horizon), 0)
        horizon = max(horizon, event.end_ns)
    return total * 1e-9


def nest(
    events: Sequence[RawEvent], seconds: Mapping[int, float], kernels: Mapping[int, int] | None = None
) -> list[Event]:
    """Count what is nested in each host event; sum its device seconds and its kernels (given by event number).

    ``events`` are in order of their start. Nesting is kept per thread: on accelerators backward has a thread of its
    own, and the two interleave. The first event's time is subtracted in whole nanoseconds: a float holds seconds since
    1970 to 0.2 microseconds only.
    """
    origin = events[0].start_ns if events else 0
    inside = [0] * len(events)
    device = [seconds.get(e.number, 0.0) for e in events]
    ran = [(kernels or {}).get(e.number, 0) for e in events]
    open_events: dict[int, list[int]] = defaultdict(list)
    for i, event in enumerate(events):
        stack = open_events[event.thread]
        while stack and events[stack[-1]].end_ns <= event.start_ns:
            stack.pop()
        for parent in stack:
            inside[parent] += 1
            device[parent] += device[i]
            ran[parent] += ran[i]
        stack.append(i)
    return [
        Event(e.name, (e.start_ns - origin) * 1e-9, (e.end_ns - origin) * 1e-9, e.sequence, n, seconds_of, k)
        for e, n, seconds_of, k in zip(events, inside, device, ran, strict=True)
    ]
