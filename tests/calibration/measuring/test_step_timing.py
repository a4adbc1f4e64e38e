"""What recording added is subtracted from ops, ops and step are brought to one speed, and phases are told apart."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from placer.calibration.measuring import step_timing
from placer.calibration.measuring.step_timing import (
    NESTED_COST,
    OUTER_COST,
    OWN_SHARE,
    Ends,
    OpTiming,
    Phases,
    RecorderCost,
    StepTiming,
    typical,
)
from placer.tracing.trace_data import OpCall, TensorSpec


def call(op: str) -> OpCall:
    spec = TensorSpec((4,), (1,), "float32")
    return OpCall(op, (spec,), (spec,))


def test_what_recording_added_is_subtracted() -> None:
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
    assert halted.undisturbed_share(RecorderCost(0.0, 0.0)) == pytest.approx(1.0 / step_timing.MOST_DRIFT)


def test_the_larger_the_share_of_recording_the_less_a_recorded_step_says_of_the_speed() -> None:
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
def test_what_recording_cost_in_this_very_step_is_subtracted(added: float) -> None:
    """With the average step's cost instead, ops inside fast loops would lose half of their own time."""
    step, average = loop_of_many_events(2e-4 + added), RecorderCost(0.0, 0.45e-6)
    own = step.recording(average)
    assert step.undisturbed_share(average) * step.ops[0].corrected(own) == pytest.approx(2e-4, rel=0.03)


def test_a_slower_machine_is_not_taken_for_recording() -> None:
    """A long step with few events took a fifth longer: that is the machine's speed, not the events."""
    step = StepTiming(1e-2, 0.01, 1.2e-2, 100, (), 1.0)
    average = RecorderCost(1e-5, 0.5e-6)
    assert step.undisturbed_share(average) == pytest.approx(1 / 1.2, rel=0.01)
    assert step.recording(average).per_event == pytest.approx(average.per_event, rel=0.05)


def test_what_recording_cost_in_one_step_is_not_far_from_the_average() -> None:
    step, average = loop_of_many_events(5e-3), RecorderCost(0.0, 0.45e-6)
    assert step.recording(average).per_event <= step_timing.MOST_UNLIKE * average.per_event
    assert step.recording(RecorderCost(0.0, 0.0)) == RecorderCost(0.0, 0.0)


def test_what_recording_adds_to_a_launch_is_taken_off() -> None:
    timing = OpTiming(call("aten::lstm"), 1e-4, 0, 0.0, 20.0)
    cost = RecorderCost(0.0, 0.0, 2e-6)
    assert timing.corrected(cost) == pytest.approx(6e-5)
    step = StepTiming(seconds=1e-3, spread=0.01, recorded_seconds=1e-3 + 4e-5, events=1, ops=(timing,), matched=1.0)
    assert step.undisturbed_share(cost) == pytest.approx(1.0)


def test_recording_is_hidden_where_the_device_takes_longer() -> None:
    """What recording adds on the host does not lengthen such a step: the ratio of the two says nothing of the speed."""
    busy = OpTiming(call("aten::mm"), 1e-5, 0, 9e-4)
    step = StepTiming(seconds=1e-3, spread=0.01, recorded_seconds=1e-3, events=400, ops=(busy,), matched=1.0)
    cost = RecorderCost(1e-4, 1e-6)
    assert step.undisturbed_share(cost) == 1.0
    assert replace(step, ops=(replace(busy, device_seconds=1e-5),)).undisturbed_share(cost) > 1.05


def test_clearing_gradients_belongs_to_the_update() -> None:
    assert Ends(cleared=11.0, forward=14.0, backward=19.0).phases(10.0, 21.0) == Phases(3.0, 5.0, 1.0 + 2.0)


def test_typical_phases_add_up_to_the_step() -> None:
    seen = [Phases(1.0, 2.0, 1.0), Phases(9.0, 2.0, 1.0), Phases(1.0, 2.0, 1.0)]
    found = typical(seen, 2.0)
    assert found is not None
    assert astuple(found) == pytest.approx((0.5, 1.0, 0.5))
    assert typical([], 2.0) is None
