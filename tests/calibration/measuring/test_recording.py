"""What the recorder shows of a step, who launched what, and what recording costs. The events are made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._C._autograd import DeviceType
from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.measuring import recording
from placer.calibration.measuring.events import RawEvent, assign
from placer.calibration.measuring.recording import STEP_MARK, read_steps

GPU = DeviceType.CUDA


@dataclass
class Raw:
    """What the recorder hands out, times in nanoseconds."""

    called: str
    start: int
    end: int
    thread: int = 1
    correlation: int = 0
    linked: int = 0
    device: DeviceType = DeviceType.CPU
    annotation: bool = False
    activity: str = "cpu_op"

    def __getattr__(self, name: str) -> Callable[[], Any]:
        fields = {
            "name": "called", "start_ns": "start", "end_ns": "end", "start_thread_id": "thread",
            "correlation_id": "correlation", "linked_correlation_id": "linked", "device_type": "device",
            "is_user_annotation": "annotation", "activity_type": "activity",
        }  # fmt: skip
        return (lambda: -1) if name == "sequence_nr" else lambda: getattr(self, fields[name])


MARK = Raw(STEP_MARK, 0, 1000)
#: A float holds seconds since 1970 to 0.2 microseconds, and a view takes one microsecond.
NOW = 1_795_358_098_194_717_221


def test_nesting_is_counted_per_step_and_thread_at_any_date() -> None:
    (first, _), second = read_steps(
        [
            Raw(STEP_MARK, 1000, 2000),
            Raw("aten::linear", 1100, 1500),
            Raw("aten::addmm", 1200, 1400),
            Raw("aten::copy_", 1250, 1300),
            Raw("aten::relu", 1500, 1600),
            Raw("aten::mul", 1150, 1450, thread=2),
            Raw(STEP_MARK, NOW, NOW + 9000),
            Raw("aten::view", NOW + 1001, NOW + 1731),
            Raw("aten::stray", 5000, 6000),
        ]
    )
    assert {e.name: e.inside for e in first} == {
        "aten::linear": 2,
        "aten::addmm": 1,
        "aten::copy_": 0,
        "aten::relu": 0,
        "aten::mul": 0,
    }
    ((view,), (as_read,)) = second
    assert view.end - view.start == pytest.approx(730e-9, rel=1e-6)
    assert as_read.start_ns == NOW + 1001


def test_kernels_count_for_the_op_that_launched_them_and_for_all_around_it() -> None:
    """Not for a launch; a range on the device is no kernel beside those within it, nor is the recorder's own work."""
    update = "Optimizer.step#Adam.step"
    ((events, _),) = read_steps(
        [
            MARK,
            Raw(update, 50, 600, correlation=3),
            Raw("aten::linear", 100, 500, correlation=1),
            Raw("aten::addmm", 200, 400, correlation=2),
            Raw("cudaLaunchKernel", 200, 300, linked=2, correlation=9),
            Raw("kernel", 2000, 2300, linked=2, device=GPU),
            Raw("kernel", 2300, 2400, linked=2, device=GPU),
            Raw("kernel", 2000, 2300, device=GPU),  # of no op
            Raw(update, 2000, 2900, linked=3, device=GPU, annotation=True),
            Raw("cudaDeviceSynchronize", 600, 700, correlation=1),
            Raw("Activity Buffer Request", 710, 720, correlation=1, activity="overhead"),
        ]
    )
    found = {e.name: (round(e.device_seconds * 1e9), e.kernels) for e in events}
    assert found == {update: (400, 2), "aten::linear": (400, 2), "aten::addmm": (400, 2)}


def event(name: str, start: int, end: int, number: int, kind: Any = "op", **more: Any) -> RawEvent:
    return RawEvent(name, start, end, -1, more.pop("thread", 1), number, kind, **more)


def test_kernels_side_by_side_count_once() -> None:
    """cuDNN runs the layers and directions of an LSTM on several streams."""
    kernels = [event("gemm", start, end, 77, "kernel") for start, end in ((0, 100), (50, 120), (200, 210))]
    launch = event("cudaLaunchKernel", 1, 2, 77, "runtime")
    found = assign([event("aten::_cudnn_rnn", 0, 90, 5), launch, *kernels])
    (lstm,) = found.nested(found.within(0, 99))
    assert (lstm.kernels, lstm.device_seconds) == (3, pytest.approx(130e-9))


class OpsTakeTime(TorchDispatchMode):
    """A clock that only ops move: each takes 5 us, and 2 us more while it is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.now += 7e-6 if torch.autograd._profiler_enabled() else 5e-6
        return func(*args, **(kwargs or {}))


def test_what_recording_costs_is_found_from_chains_of_several_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real chains and a real recorder; every op has one event, and other events take nothing."""
    monkeypatch.setattr(recording, "COST_ROUNDS", 1)
    with OpsTakeTime() as ops:  # type: ignore[no-untyped-call]
        found = recording.recorder_cost(lambda: ops.now)
    assert found.per_step >= 0.0
    assert 0.0 < found.per_event < 2e-6
