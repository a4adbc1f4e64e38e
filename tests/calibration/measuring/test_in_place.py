"""Events of a step matched with its trace: hand-made lists, then one real step."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch._C._autograd import DeviceType

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring import in_place, recording
from placer.calibration.measuring.bench import MOST_WARM_UP, Bench, warm_up
from placer.calibration.measuring.in_place import StepTiming, time_step
from placer.calibration.measuring.matching import (
    BACKWARD_NODE,
    NESTED_COST,
    OUTER_COST,
    OWN_SHARE,
    OpTiming,
    RecorderCost,
    match,
)
from placer.calibration.measuring.phases import Ends
from placer.calibration.measuring.recording import STEP_MARK, Event, Recorded
from placer.calibration.measuring.speed_probe import SpeedProbe, binned
from placer.tracing import trace
from placer.tracing.trace import OpCall, Phase, TensorSpec, Trace
from placer.workload.workload import make_workload


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


def test_kernels_count_for_the_op_that_launched_them_and_all_around_it() -> None:
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
        Raw("kernel", 2000, 2300, device=DeviceType.CUDA),  # of nobody
    ])  # fmt: skip
    assert [(e.name, e.device_seconds) for e in step] == [("aten::relu", 0.0)]


def test_short_events_are_as_long_as_the_recorder_says_at_any_date() -> None:
    """Seconds since 1970 in a float are known to 0.2 microseconds: a view takes one."""
    now = 1_795_358_098_194_717_221
    (step,) = recording._steps([Raw(STEP_MARK, now, now + 9000), Raw("aten::view", now + 1001, now + 1731)])
    assert step[0].end - step[0].start == pytest.approx(730e-9, rel=1e-6)


SPEC = TensorSpec((4,), (1,), "float32")
OTHER = TensorSpec((8,), (1,), "float32")


def call(op: str, phase: Phase = "forward", spec: TensorSpec = SPEC) -> OpCall:
    return OpCall(op, (spec,), (spec,), phase=phase)


def event(name: str, start: float, end: float, *, inside: int = 0, sequence: int = -1) -> Event:
    return Event(name, start, end, sequence, inside, 0.0)


def matched(calls: Sequence[OpCall], events: Sequence[Event]) -> list[float | None]:
    """Host seconds of each call, None where no event was found."""
    found = match(Trace(tuple(calls), "train", (), (), (), ()), events)
    assert [t.call for t in found if t is not None] == [c for c, t in zip(calls, found, strict=True) if t is not None]
    return [None if t is None else pytest.approx(t.host_seconds) for t in found]  # type: ignore[misc]


def test_calls_are_matched_in_order() -> None:
    events = [event("aten::mm", 0, 1), event("aten::relu", 1, 3), event("aten::mm", 3, 7)]
    assert matched([call("aten::mm"), call("aten::relu"), call("aten::mm")], events) == [1, 2, 4]


def test_an_event_inside_a_matched_one_is_not_another_call() -> None:
    events = [event("aten::mm", 0, 4, inside=1), event("aten::mm", 1, 2), event("aten::mm", 5, 6)]
    assert matched([call("aten::mm"), call("aten::mm")], events) == [4, 1]


def test_a_skipped_op_costs_only_itself() -> None:
    events = [event("aten::mm", 0, 1), event("aten::relu", 1, 3), event("aten::add", 3, 6), event("aten::mul", 7, 8)]
    calls = [call("aten::mm"), call("aten::mul"), call("aten::relu"), call("aten::add"), call("aten::mul")]
    assert matched(calls, events) == [1, None, 2, 3, 1]
    assert matched([call("aten::mm"), call("aten::gone"), call("aten::relu")], events) == [1, None, 2]


def test_an_in_place_twin_is_the_same_op() -> None:
    assert matched([call("aten::add")], [event("aten::add_", 0, 2)]) == [2]


def test_a_gpus_batch_norm_is_found_by_its_librarys_name() -> None:
    events = [
        event("aten::batch_norm", 0, 9, inside=2), event("aten::cudnn_batch_norm", 1, 8, inside=1),
        event("aten::empty", 2, 3), event("aten::relu", 9, 10),
        event(f"{BACKWARD_NODE}: CudnnBatchNormBackward0", 20, 30, inside=1),
        event("aten::cudnn_batch_norm_backward", 21, 24),
    ]  # fmt: skip
    calls = [
        call("aten::native_batch_norm"), call("aten::relu"), call("aten::native_batch_norm_backward", "backward")
    ]  # fmt: skip
    assert matched(calls, events) == [7, 1, 3]


def test_a_whole_ops_backward_is_found_by_sequence_number() -> None:
    events = [
        event("aten::lstm", 0, 10, inside=2), event("aten::mm", 1, 2, sequence=7),
        event("aten::tanh", 3, 4, sequence=8),
        event("aten::sum", 11, 12, sequence=9), event(f"{BACKWARD_NODE}: SumBackward0", 13, 14, sequence=9),
        event(f"{BACKWARD_NODE}: TanhBackward0", 14, 17, sequence=8, inside=1), event("aten::tanh_backward", 15, 16),
        event(f"{BACKWARD_NODE}: MmBackward0", 20, 25, sequence=7, inside=2),
    ]  # fmt: skip
    calls = [call("aten::lstm"), call("aten::sum", "loss"), call("aten::lstm_backward", "backward")]
    found = match(Trace(tuple(calls), "train", (), (), (), ()), events)
    assert found[2] is not None
    assert found[2].host_seconds == pytest.approx(25 - 14)  # the engine's time between its nodes is the op's as well
    assert found[2].inside == (1 + 1) + (2 + 1)


def test_two_whole_ops_and_their_gradients_in_reverse() -> None:
    def node(start: float, end: float, sequence: int) -> Event:
        return event(f"{BACKWARD_NODE}: X", start, end, sequence=sequence)

    events = [
        event("aten::gru", 0, 3, inside=1), event("aten::mm", 1, 2, sequence=1),
        event("aten::gru", 4, 7, inside=1), event("aten::mm", 5, 6, sequence=2), node(10, 11, 2), node(12, 14, 1),
    ]  # fmt: skip
    small, large = call("aten::gru"), call("aten::gru", spec=OTHER)
    gradients = [call("aten::gru_backward", "backward", OTHER), call("aten::gru_backward", "backward", SPEC)]
    assert matched([small, large, *gradients], events) == [3, 3, 1, 2]


def test_an_optimizers_step_is_shared_evenly() -> None:
    calls = [call("aten::mm"), *(call("optimizer::Adam", "optimizer") for _ in range(4))]
    events = [event("aten::mm", 0, 1), event("Optimizer.step#Adam.step", 2, 10, inside=20)]
    found = match(Trace(tuple(calls), "train", (), (), (), ()), events)
    assert [t.host_seconds for t in found if t] == [1, 2, 2, 2, 2]
    assert [t.inside for t in found if t] == [0, 5, 5, 5, 5]
    assert matched(calls, events[:1]) == [1, None, None, None, None]


def test_what_recording_added_is_taken_off() -> None:
    timing = OpTiming(call("aten::linear"), 10e-6, 3, 0.0)
    assert timing.corrected(RecorderCost(1.0, 0.0)) == 10e-6
    added = 1e-6 * (NESTED_COST * 3 + OWN_SHARE)
    assert timing.corrected(RecorderCost(0.0, 1e-6)) == pytest.approx(10e-6 - added)
    assert timing.corrected(RecorderCost(0.0, 1.0)) == pytest.approx(2.5e-6)  # never below a quarter of what was seen


def test_ops_and_step_are_brought_to_one_speed() -> None:
    step = StepTiming(seconds=1.0, spread=0.01, recorded_seconds=1.003, events=1000, ops=(), matched=1.0)
    cost = RecorderCost(1e-4, 1e-6)
    assert step.undisturbed_share(cost) == pytest.approx(1.0 / (1.0029 - 1e-3 * OUTER_COST), rel=1e-5)
    nested = replace(step, ops=(OpTiming(call("aten::gru"), 1e-4, 800, 0.0),))
    recorded = 1.0029 - 1e-6 * (200 * OUTER_COST + 800 * NESTED_COST)
    assert nested.undisturbed_share(cost) == pytest.approx(1.0 / recorded, rel=1e-5)
    halted = StepTiming(seconds=1e-3, spread=0.01, recorded_seconds=9e-3, events=100, ops=(), matched=1.0)
    assert halted.undisturbed_share(RecorderCost(0.0, 0.0)) == pytest.approx(1.0 / in_place.MOST_DRIFT)


def test_the_less_of_a_recorded_step_is_the_step_the_less_it_says_of_the_speed() -> None:
    cost = RecorderCost(2e-5, 0.0)
    shares = [
        StepTiming(seconds, 0.01, 1.2 * seconds + cost.per_step, 4, (), 1.0).undisturbed_share(cost)
        for seconds in (1e-6, 2e-5, 1e-4, 1e-2)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(1.0, abs=0.01)
    assert shares[-1] == pytest.approx(1 / 1.2, rel=0.01)


def loop_of_many_events(recorded: float) -> StepTiming:
    """A step of 200 us that is one op with 600 events inside it: most of what it takes longer recorded is recording."""
    whole = OpTiming(call("aten::rnn_tanh"), recorded, 600, 0.0)
    return StepTiming(2e-4, 0.01, recorded, 601, (whole,), 1.0)


@pytest.mark.parametrize("added", [60e-6, 130e-6, 300e-6])
def test_recording_is_taken_off_as_what_it_cost_in_this_very_step(added: float) -> None:
    """Where the average step's cost was taken off instead, the ops inside fast loops lost half of their own time."""
    step, average = loop_of_many_events(2e-4 + added), RecorderCost(0.0, 0.45e-6)
    own = step.recording(average)
    assert step.undisturbed_share(average) * step.ops[0].corrected(own) == pytest.approx(2e-4, rel=0.03)


def test_what_the_machine_was_slower_is_not_taken_for_recording() -> None:
    """A long step with few events took a fifth longer: that is the machine's pace, of which no event knows."""
    step = StepTiming(1e-2, 0.01, 1.2e-2, 100, (), 1.0)
    average = RecorderCost(1e-5, 0.5e-6)
    assert step.undisturbed_share(average) == pytest.approx(1 / 1.2, rel=0.01)
    assert step.recording(average).per_event == pytest.approx(average.per_event, rel=0.05)


def test_what_recording_cost_in_one_step_is_not_far_from_the_average() -> None:
    step, average = loop_of_many_events(5e-3), RecorderCost(0.0, 0.45e-6)
    assert step.recording(average).per_event <= in_place.MOST_UNLIKE * average.per_event
    assert step.recording(RecorderCost(0.0, 0.0)) == RecorderCost(0.0, 0.0)


def test_the_first_recorded_step_counts_only_among_few(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [(Recorded(float(i), []), 1e-4) for i in range(6)]
    monkeypatch.setattr(in_place, "record", lambda _, rounds, **__: runs[:rounds])
    stopwatch = in_place.Stopwatch(lambda: None, None, itertools.count().__next__, None)
    assert [run.seconds for run, _ in stopwatch.in_turns(1, 6, 1)[1]] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [run.seconds for run, _ in stopwatch.in_turns(1, 4, 1)[1]] == [0.0, 1.0, 2.0, 3.0]


class Watched(SpeedProbe):
    """A speed_probe that was felt for a minute at each of some ``paces``, seconds per reading."""

    def __init__(self, *paces: float) -> None:
        super().__init__(1)
        for pace in paces:
            self._spent[binned(pace)] += 60.0


@pytest.mark.parametrize(
    ("paces", "whole", "lengthened", "first", "second", "recorded"),
    [((1e-4,), 4e-3, 1.25, 1e-3, 2e-3, 5e-3), ((1e-4, 6e-5), 5e-3, 1.0, 1.5e-3, 3e-3, 6.5e-3)],
)
def test_the_fastest_repetition_of_each_op_counts_on_a_machine_at_rest(
    monkeypatch: pytest.MonkeyPatch,
    paces: tuple[float, ...], whole: float, lengthened: float, first: float, second: float, recorded: float,
) -> None:  # fmt: skip
    """A neighbour who comes for less than a step disturbs another op each time: no repetition is whole.

    What people wait for is the median step all the same. Where the machine is faster at times, what shortens an op is
    as likely as what lengthens it.
    """
    times = [(1e-3, 6e-3), (3e-3, 3e-3), (1.5e-3, 2e-3)]
    runs = [
        (Recorded(a + b + 2e-3, [event("aten::mm", 0, a), event("aten::relu", a, a + b)]), 1e-4) for a, b in times
    ]
    around = [(in_place.Whole(seconds, None), 1e-4) for seconds in (3e-3, 4e-3, 5e-3, 6e-3, 9e-3)]
    monkeypatch.setattr(in_place.Stopwatch, "in_turns", lambda *_: (around, runs))
    traced = Trace((call("aten::mm"), call("aten::relu")), "train", (), (), (), ())
    timing = time_step(lambda: None, traced, speed_probe=Watched(*paces))
    assert timing.seconds == whole
    assert timing.lengthened == lengthened
    assert [op.host_seconds for op in timing.ops] == pytest.approx([first, second])
    assert timing.recorded_seconds == pytest.approx(recorded)


def test_a_step_that_says_when_its_phases_ended_is_timed_phase_by_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clearing gradients is the update's; the phases add up to the step, and a device may still be busy with them."""
    now = [0.0]

    def step() -> Ends:
        start = now[0]
        now[0] = start + 1.0  # with a last second after everything
        return Ends(cleared=start + 0.1, forward=start + 0.4, backward=start + 0.9)

    monkeypatch.setattr(in_place, "record", lambda *_, **__: [(Recorded(1.0, []), 0.0)] * 4)
    timing = time_step(step, Trace((), "train", (), (), (), ()), clock=lambda: now[0])
    assert timing.phases is not None
    assert dataclasses.astuple(timing.phases) == pytest.approx((0.3, 0.5, 0.2))
    accelerated = time_step(
        step, Trace((), "train", (), (), (), ()), clock=lambda: now[0], synchronize=lambda: None
    )
    assert accelerated.phases is None


def test_what_recording_costs_is_found_from_chains_of_several_lengths() -> None:
    found = in_place.recorder_cost("cpu")
    assert found.per_step >= 0.0
    assert 0.0 < found.per_event <= in_place.MOST_PER_EVENT


def test_one_disturbed_moment_does_not_decide_what_recording_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = itertools.cycle((20.0, 80.0, 240.0))
    disturbed = iter([0.0, 3e-3, 0.0, 0.0, 0.0, -1e-3, *[0.0] * 100])
    monkeypatch.setattr(in_place, "record", lambda *_, **__: [])
    monkeypatch.setattr(
        in_place, "_added", lambda *_: (n := next(lengths), 2e-5 + 7e-7 * n + next(disturbed))
    )
    assert in_place.recorder_cost("cpu") == RecorderCost(pytest.approx(2e-5), pytest.approx(7e-7))


def test_a_real_step_is_matched_almost_whole() -> None:
    model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14, 4))
    data = torch.randn(8, 3, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)
    traced = trace(make_workload(model, example=(data,), mode="train", optimizer="adam", data="device"))

    def step() -> None:
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    timing = time_step(step, traced, seconds=0.05)
    assert timing.matched >= 0.9
    assert timing.events >= len(timing.ops)
    assert 0 < sum(op.host_seconds for op in timing.ops) < 3 * timing.recorded_seconds
    assert {op.call.phase for op in timing.ops} == {"forward", "loss", "backward", "optimizer"}


@pytest.mark.parametrize(("seconds", "steps"), [(0.004, 3), (0.5, 1), (0.0, MOST_WARM_UP)])
def test_a_probe_runs_for_a_while_before_it_is_timed(seconds: float, steps: int) -> None:
    """Cores that slept come back; a clock that stands still does not keep it waiting."""
    ran: list[None] = []
    warm_up(lambda: ran.append(None), lambda: seconds * len(ran))
    assert len(ran) == steps


def test_a_probe_is_measured_and_described() -> None:
    probe = Probe("matmul", "one layer", lambda: nn.Linear(16, 8), lambda: (torch.randn(4, 16),), "train", "sgd")
    seen = Bench("cpu", torch.get_num_threads()).measure(probe, seconds=0.02)
    assert seen is not None
    assert (seen.device, seen.family, seen.name) == ("cpu", "matmul", "one layer")
    assert seen.counts["training_step"] == 1
    product = next(op for op in seen.ops if op.op == "aten::addmm")
    assert product.seconds is not None
    assert product.work().flops == 2 * 4 * 16 * 8
    assert 0 < product.seconds < seen.seconds
    # On the CPU every op of so plain a step is found, so its phases are known.
    assert set(seen.gaps) == {"forward", "backward", "update"}
    assert 0 < seen.gaps["update"] < seen.seconds
