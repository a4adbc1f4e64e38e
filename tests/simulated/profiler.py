"""What torch's recorder would see of the device's kernels, if it knew the device.

While a recorder runs, every launch is marked by an event of its own, inside its op's. Afterwards ``events_of`` puts a
call of a runtime library in its place, and the kernel beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from simulated.spec import Spec

#: How the events that mark launches are called, up to the number of the launch; and what stands in their place.
MARK, CALL = "simLaunchKernel ", "cudaLaunchKernel"


@dataclass
class Sessions:
    """How many sessions have ended, and the kernels launched in this one: numbers, names and seconds."""

    ended: int = 0
    launched: int = 0
    kernels: dict[int, tuple[str, float]] = field(default_factory=dict)
    losing: bool = False


SESSIONS = Sessions()


def forget_sessions() -> None:
    """As in a new process."""
    SESSIONS.ended = 0
    SESSIONS.kernels.clear()


@contextmanager
def launching(spec: Spec, op: str, seconds: float) -> Iterator[None]:
    """Mark a launch, if a recorder runs that could see it."""
    if not spec.profiled or not torch.autograd._profiler_enabled():
        yield
        return
    SESSIONS.launched += 1
    SESSIONS.losing = spec.loses_kernels
    SESSIONS.kernels[SESSIONS.launched] = (f"sim_{op}_kernel", seconds)
    with record_function(f"{MARK}{SESSIONS.launched}"):
        yield


class Recorder:
    """In the place of ``torch.profiler.profile``: it records the kernels of this device, too, where it is told to."""

    def __init__(self, activities: Iterable[ProfilerActivity]) -> None:
        self._with_kernels = ProfilerActivity.PrivateUse1 in activities
        self._recorder = profile(activities=[ProfilerActivity.CPU])
        self._seen: list[Any] = []
        self.profiler = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: self._seen))

    def start(self) -> None:
        SESSIONS.kernels.clear()
        self._recorder.start()

    def stop(self) -> None:
        self._recorder.stop()
        assert self._recorder.profiler is not None
        assert self._recorder.profiler.kineto_results is not None
        events = self._recorder.profiler.kineto_results.events()
        plain = [event for event in events if not event.name().startswith(MARK)]
        self._seen += events_of(events) if self._with_kernels else plain


def supported_activities() -> set[ProfilerActivity]:
    """In the place of ``torch.profiler.supported_activities``."""
    return {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1}


def events_of(recorded: Sequence[Any]) -> list[Any]:
    """The events of a session that just ended. The first k kernels of session k are lost where the device does that."""
    lost = sorted(SESSIONS.kernels)[: SESSIONS.ended] if SESSIONS.losing else []
    SESSIONS.ended += 1
    found: list[Any] = []
    for event in recorded:
        if not event.name().startswith(MARK):
            found.append(event)
            continue
        number = int(event.name().removeprefix(MARK))
        found.append(_Seen(CALL, event.start_ns(), event.end_ns(), event.start_thread_id(), number, DeviceType.CPU))
        if number not in lost:
            name, seconds = SESSIONS.kernels[number]
            start = event.end_ns()
            found.append(_Seen(name, start, start + round(seconds * 1e9), 0, number, DeviceType.PrivateUse1))
    return found


class _Seen:
    """One of the recorder's events: a call in the runtime library, or a kernel. All that it says it is asked for."""

    def __init__(self, name: str, start_ns: int, end_ns: int, thread: int, number: int, device: DeviceType) -> None:
        self._answers = {
            "name": name,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "duration_ns": end_ns - start_ns,
            "sequence_nr": -1,
            "start_thread_id": thread,
            "correlation_id": number,
            "linked_correlation_id": 0,
            "device_type": device,
            "device_resource_id": 7,
            "is_user_annotation": False,
            "activity_type": "cuda_runtime" if name == CALL else "kernel",
        }

    def __getattr__(self, name: str) -> Callable[[], Any]:
        return partial(self._answers.__getitem__, name)
