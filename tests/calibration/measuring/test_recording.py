"""The recorder's events of a step: nesting, kernels, times. The events are made by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._C._autograd import DeviceType

from placer.calibration.measuring import recording
from placer.calibration.measuring.events import Event
from placer.calibration.measuring.journal import KernelsLostError
from placer.calibration.measuring.recording import STEP_MARK, Recorded, Sessions, give_away_kernels, read_steps, whole


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

    def activity_type(self) -> str:
        return self.activity

    def device_resource_id(self) -> int:
        return 7


def steps_of(raw: list[Raw]) -> list[list[Event]]:
    return [events for events, _, _ in read_steps(raw)]


def test_nesting_is_counted_per_step_and_thread() -> None:
    (first, second) = steps_of([
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
    (step,) = steps_of([
        Raw(STEP_MARK, 0, 1000), Raw("aten::linear", 100, 500, correlation=1),
        Raw("aten::addmm", 200, 400, correlation=2),
        Raw("kernel", 2000, 2300, linked=2, device=DeviceType.CUDA),
        Raw("kernel", 2300, 2400, linked=2, device=DeviceType.CUDA),
    ])  # fmt: skip
    assert {e.name: round(e.device_seconds * 1e9) for e in step} == {"aten::linear": 400, "aten::addmm": 400}


def test_a_range_on_the_device_is_no_kernel_beside_those_within_it() -> None:
    update, multiply = "Optimizer.step#Adam.step", "aten::mul_"
    (step,) = steps_of([
        Raw(STEP_MARK, 0, 1000), Raw(update, 100, 500, correlation=1), Raw(multiply, 200, 400, correlation=2),
        Raw(update, 2000, 2900, linked=1, device=DeviceType.CUDA, annotation=True),
        Raw("kernel", 2000, 2300, linked=2, device=DeviceType.CUDA),
    ])  # fmt: skip
    assert {e.name: round(e.device_seconds * 1e9) for e in step} == {update: 300, multiply: 300}


def test_launches_take_no_time_of_the_device() -> None:
    (step,) = steps_of([
        Raw(STEP_MARK, 0, 1000), Raw("aten::relu", 100, 500, correlation=1),
        Raw("cudaLaunchKernel", 200, 300, linked=1),
        Raw("kernel", 2000, 2300, device=DeviceType.CUDA),  # of no op
    ])  # fmt: skip
    assert [(e.name, e.device_seconds) for e in step] == [("aten::relu", 0.0)]


def test_short_events_are_as_long_as_the_recorder_says_at_any_date() -> None:
    """A float holds seconds since 1970 to 0.2 microseconds, and a view takes one microsecond."""
    now = 1_795_358_098_194_717_221
    (step,) = steps_of([Raw(STEP_MARK, now, now + 9000), Raw("aten::view", now + 1001, now + 1731)])
    assert step[0].end - step[0].start == pytest.approx(730e-9, rel=1e-6)


def test_calls_of_the_runtime_and_the_recorders_own_work_are_no_ops() -> None:
    """Their numbers are CUPTI's, and may equal an op's: its kernels would be theirs."""
    ((events, launches, lost),) = read_steps([
        Raw(STEP_MARK, 0, 1000), Raw("aten::relu", 100, 500, correlation=1),
        Raw("cudaDeviceSynchronize", 600, 700, correlation=1),
        Raw("Activity Buffer Request", 710, 720, correlation=1, activity="overhead"),
        Raw("cudaLaunchKernel", 200, 300, linked=1, correlation=9),
        Raw("kernel", 2000, 2300, linked=1, correlation=9, device=DeviceType.CUDA),
    ])  # fmt: skip
    assert [(e.name, e.kernels) for e in events] == [("aten::relu", 1)]
    assert (launches, lost) == (1, 0)


class OldRaw(Raw):
    """An event of a torch that knows neither annotations nor activities."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("is_user_annotation", "activity_type"):
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_an_event_without_the_newer_methods_is_read() -> None:
    assert steps_of([OldRaw(STEP_MARK, 0, 1000), OldRaw("relu", 100, 500)])[0][0].name == "relu"


def test_steps_of_which_kernels_are_lost_do_not_count() -> None:
    raw = []
    for step, kernels in enumerate((0, 1, 2)):
        start = 1000 * step
        raw += [Raw(STEP_MARK, start, start + 900), Raw("aten::linear", start + 100, start + 500, correlation=step + 1)]
        raw += [Raw("cudaLaunchKernel", 0, 1, linked=step + 1, correlation=10 * step + n) for n in (5, 6)]
        raw += [Raw("kernel", 0, 1, linked=step + 1, device=DeviceType.CUDA) for _ in range(kernels)]
    runs = [(Recorded(1.0, *step), 0.0) for step in read_steps(raw)]
    assert [(run.launches, run.lost) for run, _ in runs] == [(2, 2), (2, 1), (2, 0)]
    assert whole(runs) == runs[2:]
    with pytest.raises(KernelsLostError):
        whole(runs[:2])
    assert whole([]) == []


def test_every_session_gives_away_one_kernel_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Session k of a process loses its first k kernels: those of the steps stay."""
    sessions, waits = Sessions(), []
    monkeypatch.setattr(recording, "SESSIONS", sessions)
    for number in range(3):
        with torch.profiler.profile() as profile:
            give_away_kernels(torch.device("cpu"), lambda: waits.append(1))
        given = sum(e.count for e in profile.key_averages() if e.key == "aten::neg_")
        assert given == number + recording.GIVEN_AWAY > sessions.count - 1
    assert len(waits) == sessions.count == 3


def test_the_share_of_lost_kernels_is_kept_for_the_profile() -> None:
    assert Sessions().lost_share == 0.0
    assert Sessions(count=2, launches=200, lost=3).lost_share == 0.015
