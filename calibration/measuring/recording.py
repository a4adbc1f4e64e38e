"""Runs a step under the framework's own event recorder, and reads the events.

``torch.profiler`` records in C++ when each op begins and ends, at about a microsecond per event.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from placer.calibration.measuring.speed_probe import SpeedProbe, watched

# The recorder's library prints its life cycle on stderr unless told otherwise before it starts.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

STEP_MARK = "placer::step"


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded interval on the host, in seconds since its step's first event; ``inside``: events nested in it."""

    name: str
    start: float
    end: float
    sequence: int
    inside: int
    device_seconds: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """One step under the recorder: its seconds and its events."""

    seconds: float
    events: list[Event]


def record(
    timed: Callable[[], float], rounds: int, *, accelerated: bool = False, speed_probe: SpeedProbe | None = None
) -> list[tuple[Recorded, float]]:
    """Recorded steps, each with the less usual of the readings (seconds) around it.

    ``timed`` runs a step and returns its seconds. ``accelerated``: kernels of a GPU are recorded too.
    """
    activities = [ProfilerActivity.CPU]
    if accelerated and torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)

    def marked() -> float:
        with record_function(STEP_MARK):
            return timed()

    # Waiting for the usual speed runs many ops: it ends before the recorder starts.
    before = None if speed_probe is None else speed_probe.settle()
    with recorder_of(activities) as recorder:
        runs = watched(speed_probe, marked, rounds, before=before)
    assert recorder.profiler is not None
    assert recorder.profiler.kineto_results is not None
    steps = _steps(recorder.profiler.kineto_results.events())
    # Where the recorder lost the marks, nothing was recorded.
    events = itertools.chain(steps, itertools.repeat([]))
    return [(Recorded(seconds, found), reading) for (seconds, reading), found in zip(runs, events, strict=False)]


@contextmanager
def recorder_of(activities: Iterable[ProfilerActivity]) -> Iterator[profile]:
    """Run torch's recorder in the body; its results are there afterwards."""
    recorder = profile(activities=activities)
    with warnings.catch_warnings():
        # Since torch 2.11 it warns that it forgets earlier cycles, of which there are none.
        warnings.filterwarnings("ignore", message=".*Profiler clears events")
        recorder.start()
    try:
        yield recorder
    finally:
        recorder.stop()


@dataclass(frozen=True, slots=True)
class RawEvent:
    """What is read of one of the recorder's events, once: each of its methods is a call into C++."""

    name: str
    start_ns: int
    end_ns: int
    sequence: int
    thread: int
    number: int

    @classmethod
    def of(cls, event: Any) -> RawEvent:
        return cls(event.name(), event.start_ns(), event.end_ns(), event.sequence_nr(), event.start_thread_id(),
                   event.correlation_id())  # fmt: skip


def _steps(raw: Sequence[Any]) -> Iterator[list[Event]]:
    """The host events of each marked step in order of their start, each with the device time of its kernels.

    A range that the user named (an optimizer's step is one) has an event on the device too, from its first kernel
    to its last. It is left out: counted with them, the range would take twice its time (pytorch/pytorch#130730).
    """
    kernels: dict[int, float] = defaultdict(float)
    host = []
    for event in raw:
        correlation = event.linked_correlation_id()
        if event.device_type() == DeviceType.CPU:
            if correlation == 0:
                host.append(RawEvent.of(event))
        elif correlation > 0 and not event.is_user_annotation():
            kernels[correlation] += event.duration_ns() * 1e-9
    host.sort(key=lambda e: (e.start_ns, -e.end_ns))
    for position, mark in enumerate(host):
        if mark.name == STEP_MARK:
            following = takewhile(lambda e, end=mark.end_ns: e.start_ns < end, host[position + 1 :])  # type: ignore[misc]
            yield nest([e for e in following if e.name != STEP_MARK], kernels)


def nest(events: Sequence[RawEvent], kernels: Mapping[int, float]) -> list[Event]:
    """Count what is nested in each event and sum its kernels' time (``kernels``: seconds by event number).

    Nesting is kept per thread: on accelerators backward has a thread of its own, and the two interleave. The first
    event's time is subtracted in whole nanoseconds: a float holds seconds since 1970 to 0.2 microseconds only.
    """
    origin = events[0].start_ns if events else 0
    inside = [0] * len(events)
    device = [kernels.get(e.number, 0.0) for e in events]
    open_events: dict[int, list[int]] = defaultdict(list)
    for i, event in enumerate(events):
        stack = open_events[event.thread]
        while stack and events[stack[-1]].end_ns <= event.start_ns:
            stack.pop()
        for parent in stack:
            inside[parent] += 1
            device[parent] += device[i]
        stack.append(i)
    return [
        Event(e.name, (e.start_ns - origin) * 1e-9, (e.end_ns - origin) * 1e-9, e.sequence, n, d)
        for e, n, d in zip(events, inside, device, strict=True)
    ]
