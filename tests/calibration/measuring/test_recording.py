"""What the recorder shows of a step, who launched what, and what recording costs. The events are made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._C._autograd import DeviceType
from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.measuring import recording
from placer.calibration.measuring.events import Event, RawEvent, assign, is_launch, is_runtime_call, union
from placer.calibration.measuring.journal import KernelsLostError
from placer.calibration.measuring.recording import (
    CHAIN,
    STEP_MARK,
    KernelRecorder,
    Recorded,
    RecorderCost,
    Sessions,
    Stopwatch,
    give_away_kernels,
    read_steps,
    try_recorder,
)

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


def steps_of(*raw: Raw) -> list[list[Event]]:
    return [events for events, _, _ in read_steps(raw)]


def nanoseconds(events: list[Event]) -> dict[str, int]:
    return {e.name: round(e.device_seconds * 1e9) for e in events}


def test_nesting_is_counted_per_step_and_thread() -> None:
    (first, second) = steps_of(
        Raw(STEP_MARK, 1000, 2000), Raw("aten::linear", 1100, 1500), Raw("aten::addmm", 1200, 1400),
        Raw("aten::copy_", 1250, 1300), Raw("aten::relu", 1500, 1600), Raw("aten::mul", 1150, 1450, thread=2),
        Raw(STEP_MARK, 3000, 4000), Raw("aten::add", 3100, 3200), Raw("aten::stray", 5000, 6000),
    )  # fmt: skip
    assert {e.name: e.inside for e in first} == {
        "aten::linear": 2, "aten::addmm": 1, "aten::copy_": 0, "aten::relu": 0, "aten::mul": 0,
    }  # fmt: skip
    assert [(e.name, round((e.end - e.start) * 1e9)) for e in second] == [("aten::add", 100)]


def test_kernels_count_for_the_op_that_launched_them_and_for_all_around_it() -> None:
    """Not for a launch; and a range on the device is no kernel beside those within it."""
    update = "Optimizer.step#Adam.step"
    (step,) = steps_of(
        MARK, Raw(update, 50, 600, correlation=3), Raw("aten::linear", 100, 500, correlation=1),
        Raw("aten::addmm", 200, 400, correlation=2), Raw("cudaLaunchKernel", 200, 300, linked=2),
        Raw("kernel", 2000, 2300, linked=2, device=GPU), Raw("kernel", 2300, 2400, linked=2, device=GPU),
        Raw("kernel", 2000, 2300, device=GPU),  # of no op
        Raw(update, 2000, 2900, linked=3, device=GPU, annotation=True),
    )  # fmt: skip
    assert nanoseconds(step) == {update: 400, "aten::linear": 400, "aten::addmm": 400}


def test_short_events_are_as_long_as_the_recorder_says_at_any_date() -> None:
    """A float holds seconds since 1970 to 0.2 microseconds, and a view takes one microsecond."""
    now = 1_795_358_098_194_717_221
    (step,) = steps_of(Raw(STEP_MARK, now, now + 9000), Raw("aten::view", now + 1001, now + 1731))
    assert step[0].end - step[0].start == pytest.approx(730e-9, rel=1e-6)


def test_calls_of_the_runtime_and_the_recorders_own_work_are_no_ops() -> None:
    """Their numbers are CUPTI's, and may equal an op's: its kernels would be theirs."""
    ((events, launches, lost),) = read_steps([
        MARK, Raw("aten::relu", 100, 500, correlation=1), Raw("cudaDeviceSynchronize", 600, 700, correlation=1),
        Raw("Activity Buffer Request", 710, 720, correlation=1, activity="overhead"),
        Raw("cudaLaunchKernel", 200, 300, linked=1, correlation=9),
        Raw("kernel", 2000, 2300, linked=1, correlation=9, device=GPU),
    ])  # fmt: skip
    assert [(e.name, e.kernels) for e in events] == [("aten::relu", 1)]
    assert (launches, lost) == (1, 0)


def event(name: str, start: int, end: int, number: int, kind: Any = "op", **more: Any) -> RawEvent:
    return RawEvent(name, start, end, -1, more.pop("thread", 1), number, kind, **more)


LINEAR, ADDMM = event("aten::linear", 100, 500, 1), event("aten::addmm", 200, 400, 2)
LAUNCH, SECOND = (event("cudaLaunchKernel", at, at + 9, n, "runtime") for at, n in ((300, 77), (320, 78)))
KERNEL = event("gemm", 900, 950, 77, "kernel", thread=0)
NOTED = event("gemm", 900, 950, 77, "kernel", op=1)
ELSEWHERE = event("cudaLaunchKernel", 300, 310, 77, "runtime", thread=2)
APART = event("cudaLaunchKernel", 0, 10, 77, "runtime", op=1)  # by a clock of its own
UPDATE, REDUCE = (event("Optimizer.step", 50, 600, 9, "annotation"), event("nccl", 250, 350, 8, "annotation"))
UNKNOWN = (event("gemm", 900, 950, 0, "kernel"), event("cudaLaunchKernel", 300, 310, 0, "runtime"))


@pytest.mark.parametrize(
    ("events", "owner"),
    [
        ([KERNEL, LAUNCH, ADDMM, LINEAR], 2),  # the innermost that was open
        ([KERNEL, ELSEWHERE, ADDMM, LINEAR, event("aten::mul", 250, 350, 3, thread=2)], 3),
        ([NOTED, ADDMM, LINEAR], 1), ([KERNEL, APART, ADDMM, LINEAR], 1),
        ([KERNEL, ADDMM, LINEAR], None), ([*UNKNOWN, ADDMM], None),  # launched before the session
        ([KERNEL, LAUNCH, ADDMM, LINEAR, UPDATE, REDUCE], 2), ([KERNEL, LAUNCH, UPDATE], 9),
    ],
)  # fmt: skip
def test_work_belongs_to_the_event_that_launched_it(events: list[RawEvent], owner: int | None) -> None:
    assert list(assign(events).work) == ([] if owner is None else [owner])


def test_kernels_side_by_side_count_once() -> None:
    """cuDNN runs the layers and directions of an LSTM on several streams."""
    kernels = [event("gemm", start, end, 77, "kernel") for start, end in ((0, 100), (50, 120), (200, 210))]
    assert union(kernels) == pytest.approx(130e-9)
    launch = event("cudaLaunchKernel", 1, 2, 77, "runtime")
    (lstm,) = assign([event("aten::_cudnn_rnn", 0, 90, 5), launch, *kernels]).step(0, 99)
    assert (lstm.kernels, lstm.device_seconds) == (3, pytest.approx(130e-9))


def test_a_launch_without_a_kernel_tells_that_the_profiler_lost_one() -> None:
    """Fills of nothing and kernels of a graph are none lost."""
    assert assign([KERNEL, LAUNCH, SECOND, ADDMM, LINEAR]).launches(0, 1000) == (2, 1)
    assert assign([KERNEL, LAUNCH, SECOND, ADDMM, LINEAR]).launches(600, 1000) == (0, 0)
    fill = event("cudaMemsetAsync", 320, 330, 78, "runtime")
    assert assign([KERNEL, LAUNCH, fill, ADDMM]).launches(0, 1000) == (1, 0)
    graph = event("cudaGraphLaunch", 300, 310, 77, "runtime")
    assert assign([KERNEL, KERNEL, graph, ADDMM]).launches(0, 1000) == (0, 0)


LAUNCHES = (
    "cudaLaunchKernel cudaLaunchKernelExC cuLaunchKernel cuLaunchKernelEx cudaMemcpyAsync cudaLaunchCooperativeKernel "
    "hipLaunchKernel hipExtModuleLaunchKernel hipModuleLaunchKernel hipExtLaunchKernel hipMemcpyWithStream"
)
CALLS = "cudaDeviceSynchronize cudaStreamIsCapturing cudaGraphLaunch hipFree"
OPS = "aten::cumsum cudnn_rnn CudnnRnnBackward0 custom_step hipster"


@pytest.mark.parametrize(("names", "call", "launch"), [(LAUNCHES, 1, 1), (CALLS, 1, 0), (OPS, 0, 0)])
def test_functions_of_the_runtime_are_known_by_their_names(names: str, call: int, launch: int) -> None:
    assert {(is_runtime_call(name), is_launch(name)) for name in names.split()} == {(call, launch)}


def test_steps_of_which_kernels_are_lost_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = []
    for step, kernels in enumerate((0, 1, 2)):
        start = 1000 * step
        raw += [Raw(STEP_MARK, start, start + 900), Raw("aten::linear", start + 100, start + 500, correlation=step + 1)]
        raw += [Raw("cudaLaunchKernel", 0, 1, linked=step + 1, correlation=10 * step + n) for n in (5, 6)]
        raw += [Raw("kernel", 0, 1, linked=step + 1, device=GPU) for _ in range(kernels)]
    runs = [Recorded(1.0, *step) for step in read_steps(raw)]
    assert [(run.launches, run.lost) for run in runs] == [(2, 2), (2, 1), (2, 0)]
    stopwatch = Stopwatch(lambda: None, None, itertools.count().__next__)
    monkeypatch.setattr(recording, "record", lambda _, rounds, **__: runs[:rounds])
    assert stopwatch.in_turns(1, 3, 1)[1] == runs[2:]
    with pytest.raises(KernelsLostError):
        stopwatch.in_turns(1, 2, 1)


def test_the_first_recorded_step_counts_only_among_few(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Recorded(float(i)) for i in range(6)]
    monkeypatch.setattr(recording, "record", lambda _, rounds, **__: runs[:rounds])
    stopwatch = Stopwatch(lambda: None, None, itertools.count().__next__)
    assert stopwatch.in_turns(1, 6, 1)[1] == runs[1:]
    assert stopwatch.in_turns(1, 4, 1)[1] == runs[:4]


def test_every_session_gives_away_one_kernel_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Session k of a process loses its first k kernels: those of the steps stay."""
    sessions, waits = Sessions(launches=200, lost=3), []
    monkeypatch.setattr(recording, "SESSIONS", sessions)
    for number in range(3):
        with torch.profiler.profile() as profile:
            give_away_kernels(torch.device("cpu"), lambda: waits.append(1))
        given = sum(e.count for e in profile.key_averages() if e.key == "aten::neg_")
        assert given == number + recording.GIVEN_AWAY > sessions.count - 1
    assert len(waits) == sessions.count == 3
    assert (sessions.lost_share, Sessions().lost_share) == (0.015, 0.0)


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
    monkeypatch.setattr(recording, "COST_ROUNDS", 2)
    with OpsTakeTime() as ops:  # type: ignore[no-untyped-call]
        found = recording.recorder_cost("cpu", clock=lambda: ops.now)
    assert found.per_step >= 0.0
    assert 0.0 < found.per_event <= recording.MOST_PER_EVENT
    assert found.per_event < 2e-6


def test_one_disturbed_moment_does_not_decide_what_recording_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first session of all is not empty: it might end the recording of kernels in this process."""
    lengths = itertools.cycle((20.0, 80.0, 240.0))
    disturbed = iter([0.0, 3e-3, 0.0, 0.0, 0.0, -1e-3, *[0.0] * 100])
    first: list[int] = []
    monkeypatch.setattr(recording, "record", lambda timed, *_, **__: first.append(events_of(timed)))
    monkeypatch.setattr(
        Stopwatch, "added", lambda _: (n := next(lengths), 0.0, 2e-5 + 7e-7 * n + next(disturbed))
    )
    assert recording.recorder_cost("cpu") == RecorderCost(pytest.approx(2e-5), pytest.approx(7e-7))
    assert len(first) == 1
    assert first[0] > 10


def events_of(timed: Callable[[], object]) -> int:
    with torch.profiler.profile() as profile:
        timed()
    return len(profile.key_averages())


def test_launches_are_told_from_events_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain's events launch kernels, views do not: what is left between two such chains is the launches'."""

    def added(stopwatch: Stopwatch) -> tuple[float, float, float]:
        with torch.profiler.profile() as profile:
            stopwatch.step()
        counts = {e.key: e.count for e in profile.key_averages()}
        launches = sum(counts.get(op, 0) for op in ("aten::neg_", "aten::addmm", "aten::tanh", "aten::mm"))
        return sum(counts.values()), launches, 2e-5 + 7e-7 * sum(counts.values()) + 1.5e-6 * launches

    monkeypatch.setattr(recording, "COST_ROUNDS", 1)
    monkeypatch.setattr(recording, "record", lambda *_, **__: [])
    monkeypatch.setattr(Stopwatch, "added", added)
    found = recording.recorder_cost("cpu", synchronize=lambda: None)
    assert found.per_launch == pytest.approx(1.5e-6)
    assert found.per_event == pytest.approx(7e-7)


class Host:
    """A clock that takes ``launch`` seconds for a launch, ``after`` once a session was opened."""

    def __init__(self, launch: float, after: float) -> None:
        self.now, self.launch, self.after, self.issuing = 0.0, launch, after, False

    def __call__(self) -> float:
        self.now += CHAIN * self.launch if self.issuing else 0.0
        self.issuing = not self.issuing
        return self.now


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Callable[[Host, int], KernelRecorder]:
    """Tries the recorder on a host; the number is that of the chain's kernels that it reports."""
    monkeypatch.setattr(recording, "kind_shown", lambda: "cpu")
    monkeypatch.setattr(recording, "synchronizer", lambda device: lambda: None)
    monkeypatch.setattr(recording, "_per_launch_by_kind", {})

    def attempt(host: Host, reported: int) -> KernelRecorder:
        def record(timed: Callable[[], float], rounds: int, *, accelerated: bool) -> list[Recorded]:
            host.launch = host.after
            seconds = [1e-6] * reported + [0.0] * (CHAIN - reported)
            events = [Event("aten::neg_", 0.0, 1e-6, -1, 0, s) for s in seconds]
            return [Recorded(timed(), events) for _ in range(rounds)]

        monkeypatch.setattr(recording, "record", record)
        return try_recorder("cpu", host)

    return attempt


def test_what_the_first_session_adds_to_a_launch_is_known(tried: Callable[[Host, int], KernelRecorder]) -> None:
    """It never takes less for it, nor twice as much."""
    assert tried(Host(4e-6, 5e-6), CHAIN) == KernelRecorder(True, pytest.approx(1e-6), 1e-6)
    # A second device of the kind, or a second calibration: the first session was long before.
    assert tried(Host(5e-6, 5e-6), CHAIN).per_launch == pytest.approx(1e-6)
    recording._per_launch_by_kind.clear()
    assert tried(Host(5e-6, 4e-6), CHAIN).per_launch == 0.0
    recording._per_launch_by_kind.clear()
    assert tried(Host(4e-6, 40e-6), CHAIN).per_launch == pytest.approx(4e-6)


@pytest.mark.parametrize(("reported", "sees"), [(CHAIN, True), (CHAIN - 3, True), (2, False), (0, False)])
def test_half_of_the_kernels_must_be_seen(
    reported: int, sees: bool, tried: Callable[[Host, int], KernelRecorder]
) -> None:
    assert tried(Host(4e-6, 4e-6), reported).sees is sees
    assert try_recorder("mps") == KernelRecorder(sees=False)
