"""The recorder's events of a step: nesting, kernels, times. The events are made by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from torch._C._autograd import DeviceType

from placer.calibration.measuring import recording
from placer.calibration.measuring.recording import STEP_MARK


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

    def name(self) -> str:
        return self.called

    def start_ns(self) -> int:
        return self.start

    def end_ns(self) -> int:
        return self.end

    def duration_ns(self) -> int:
        return self.end - self.start

    def start_thread_id(self) -> int:
        return self.thread

    def correlation_id(self) -> int:
        return self.correlation

    def linked_correlation_id(self) -> int:
        return self.linked

    def device_type(self) -> DeviceType:
        return self.device

    def sequence_nr(self) -> int:
        return -1

    def is_user_annotation(self) -> bool:
        return self.annotation


def test_nesting_is_counted_per_step_and_thread() -> None:
    (first, second) = recording._steps([
        Raw(STEP_MARK, 1000, 2000), Raw("aten::linear", 1100, 1500), Raw("aten::addmm", 1200, 1400),
        Raw("aten::copy_", 1250, 1300), Raw("aten::relu", 1500, 1600), Raw("aten::mul", 1150, 1450, thread=2),
        Raw(STEP_MARK, 3000, 4000), Raw("aten::add", 3100, 3200), Raw("aten::stray", 5000, 6000),
    ])  # fmt: skip
    assert {e.name: e.inside for e in first} == {
        "aten::linear": 2, "aten::addmm": 1, "aten::copy_": 0, "aten::relu": 0, "aten::mul": 0,
    }  # fmt: skip
    assert [e.name for e in second] == ["aten::add"]
    assert second[0].end - second[0].start == pytest.approx(1e-7)


def test_kernels_count_for_the_op_that_launched_them_and_for_all_around_it() -> None:
    (step,) = recording._steps([
        Raw(STEP_MARK, 0, 1000), Raw("aten::linear", 100, 500, correlation=1),
        Raw("aten::addmm", 200, 400, correlation=2),
        Raw("kernel", 2000, 2300, linked=2, device=DeviceType.CUDA),
        Raw("kernel", 2300, 2400, linked=2, device=DeviceType.CUDA),
    ])  # fmt: skip
    assert {e.name: round(e.device_seconds * 1e9) for e in step} == {"aten::linear": 400, "aten::addmm": 400}


def test_a_range_on_the_device_is_no_kernel_beside_those_within_it() -> None:
    update, multiply = "Optimizer.step#Adam.step", "aten::mul_"
    (step,) = recording._steps([
        Raw(STEP_MARK, 0, 1000), Raw(update, 100, 500, correlation=1), Raw(multiply, 200, 400, correlation=2),
        Raw(update, 2000, 2900, linked=1, device=DeviceType.CUDA, annotation=True),
        Raw("kernel", 2000, 2300, linked=2, device=DeviceType.CUDA),
    ])  # fmt: skip
    assert {e.name: round(e.device_seconds * 1e9) for e in step} == {update: 300, multiply: 300}


def test_launches_take_no_time_of_the_device() -> None:
    (step,) = recording._steps([
        Raw(STEP_MARK, 0, 1000), Raw("aten::relu", 100, 500, correlation=1),
        Raw("cudaLaunchKernel", 200, 300, linked=1),
        Raw("kernel", 2000, 2300, device=DeviceType.CUDA),  # of no op
    ])  # fmt: skip
    assert [(e.name, e.device_seconds) for e in step] == [("aten::relu", 0.0)]


def test_short_events_are_as_long_as_the_recorder_says_at_any_date() -> None:
    """A float holds seconds since 1970 to 0.2 microseconds, and a view takes one microsecond."""
    now = 1_795_358_098_194_717_221
    (step,) = recording._steps([Raw(STEP_MARK, now, now + 9000), Raw("aten::view", now + 1001, now + 1731)])
    assert step[0].end - step[0].start == pytest.approx(730e-9, rel=1e-6)
