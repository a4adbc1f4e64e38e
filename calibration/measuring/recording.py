"""Runs a step under the framework's own event recorder, and reads the events.

``torch.profiler`` records in C++ when each op begins and ends, at about a microsecond per event.
"""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from placer.calibration.measuring.clocks import keep_busy
from placer.calibration.measuring.events import Event, Kind, RawEvent, assign, device_kind, is_runtime_call
from placer.calibration.measuring.failures import KernelsLostError
from placer.calibration.measuring.speed_probe import SpeedProbe, watched
from placer.placement import synchronize

# The recorder's library prints its life cycle on stderr unless told otherwise before it starts.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

STEP_MARK = "placer::step"
#: Kernels at the head of a session beyond those that it is known to lose.
GIVEN_AWAY = 32
#: Seconds of products before what is recorded, and the rows of their matrices: few events, each of much work.
WARMING, WARMING_ROWS = 0.03, 2048


@dataclass(frozen=True, slots=True)
class Recorded:
    """One step under the recorder: its seconds, its events, its launches, and how many of their kernels were lost."""

    seconds: float
    events: list[Event]
    launches: int = 0
    lost: int = 0


@dataclass
class Sessions:
    """The recorder's sessions in this process that recorded an accelerator, and the launches seen in their steps."""

    count: int = 0
    launches: int = 0
    lost: int = 0

    @property
    def lost_share(self) -> float:
        """Share of the launches whose kernels the recorder lost."""
        return self.lost / max(self.launches, 1)


SESSIONS = Sessions()


def record(
    timed: Callable[[], float], rounds: int, *, accelerated: bool = False, speed_probe: SpeedProbe | None = None
) -> list[tuple[Recorded, float]]:
    """Recorded steps, each with the less usual of the readings (seconds) around it.

    ``timed`` runs a step and returns its seconds. ``accelerated``: kernels of a GPU are recorded too.
    """
    shown = kind_shown() if accelerated else None

    def marked() -> float:
        with record_function(STEP_MARK):
            return timed()

    # Waiting for the usual speed runs many ops: it ends before the recorder starts.
    before = None if speed_probe is None else speed_probe.settle()
    with recorder_of(activities(shown)) as recorder:
        if shown is not None:
            give_away_kernels(torch.device(shown), partial(synchronize, shown))
        runs = watched(speed_probe, marked, rounds, before=before)
    steps = read_steps(raw_events(recorder))
    # Where the recorder lost the marks, nothing was recorded.
    events = itertools.chain(steps, itertools.repeat(([], 0, 0)))
    found = [(Recorded(seconds, *step), reading) for (seconds, reading), step in zip(runs, events, strict=False)]
    SESSIONS.launches += sum(run.launches for run, _ in found)
    SESSIONS.lost += sum(run.lost for run, _ in found)
    return found


def kind_shown() -> str | None:
    """The kind of accelerator whose kernels the recorder can show in this process."""
    able = torch.profiler.supported_activities()
    if ProfilerActivity.CUDA in able:
        return "cuda"
    # What a backend that is no part of torch tells torch's recorder.
    return torch._C._get_privateuse1_backend_name() if ProfilerActivity.PrivateUse1 in able else None


def activities(shown: str | None) -> list[ProfilerActivity]:
    """What to record: the host's ops, and the kernels of this kind of accelerator."""
    kernels = {None: [], "cuda": [ProfilerActivity.CUDA]}.get(shown, [ProfilerActivity.PrivateUse1])
    return [ProfilerActivity.CPU, *kernels]


def give_away_kernels(device: torch.device, synchronize: Callable[[], None]) -> None:
    """Run kernels at the head of a session for the recorder to lose.

    From CUDA 12.6 to 13.0 every session of a process loses one kernel more than the session before, at its head
    (pytorch/pytorch#192021). The first launch of a session also asks for memory, which takes milliseconds. Starting the
    recorder lets the device idle, and its clock fall: large products bring it back.
    """
    tiny = torch.ones(8, device=device)
    for _ in range(SESSIONS.count + GIVEN_AWAY):
        tiny.neg_()
    synchronize()
    if device.type == "cuda":
        keep_busy(str(device), WARMING, time.perf_counter, rows=WARMING_ROWS)
    SESSIONS.count += 1


def whole(runs: Sequence[tuple[Recorded, float]]) -> list[tuple[Recorded, float]]:
    """The recorded steps of which no kernel was lost. Raises KernelsLostError where there is none."""
    complete = [(run, reading) for run, reading in runs if not run.lost]
    if runs and not complete:
        raise KernelsLostError("the recorder lost kernels of every step")
    return complete


@contextmanager
def recorder_of(activities: Iterable[ProfilerActivity]) -> Iterator[profile]:
    """Run torch's recorder in the body; its results are there afterwards."""
    recorder = profile(activities=activities)
    started = False
    try:
        with warnings.catch_warnings():
            # Since torch 2.11 it warns that it forgets earlier cycles, of which there are none.
            warnings.filterwarnings("ignore", message=".*Profiler clears events")
            recorder.start()
        started = True
        yield recorder
    finally:
        # One that did not start as a whole may still record, and would refuse the next session.
        with nullcontext() if started else suppress(Exception):
            recorder.stop()


def raw_events(recorder: profile) -> Sequence[Any]:
    """The recorder's own events of a session that has ended."""
    assert recorder.profiler is not None
    assert recorder.profiler.kineto_results is not None
    events: Sequence[Any] = recorder.profiler.kineto_results.events()
    return events


def read_event(event: Any) -> RawEvent | None:
    """What is read of one of the recorder's events, once: each of its methods is a call into C++.

    None for what is neither an op, a call nor a kernel. A range that the user named (an optimizer's step is one) has an
    event on the device too, from its first kernel to its last: counted with them, the range would take twice its time
    (pytorch/pytorch#130730). What the recorder itself cost has numbers that mean nothing.
    """
    name, linked = event.name(), event.linked_correlation_id()
    annotation = getattr(event, "is_user_annotation", bool)  # torch 2.5 and later
    if event.device_type() != DeviceType.CPU:
        if annotation():
            return None
        return RawEvent(name, event.start_ns(), event.end_ns(), -1, 0, event.correlation_id(), device_kind(name),
                        linked, event.device_resource_id())  # fmt: skip
    if linked or is_runtime_call(name):
        kind: Kind = "runtime"
    elif "::" not in name and getattr(event, "activity_type", str)() == "overhead":
        return None
    else:
        kind = "annotation" if annotation() else "op"
    return RawEvent(name, event.start_ns(), event.end_ns(), event.sequence_nr(), event.start_thread_id(),
                    event.correlation_id(), kind, linked)  # fmt: skip


def read_steps(raw: Iterable[Any]) -> Iterator[tuple[list[Event], int, int]]:
    """(events, launches, launches whose kernels were lost) of each marked step, the events in order of their start."""
    found = assign(event for event in map(read_event, raw) if event is not None)
    for mark in found.host:
        if mark.name == STEP_MARK:
            begin, end = mark.start_ns, mark.end_ns
            yield found.step(begin, end, without=STEP_MARK), *found.launches(begin, end)
