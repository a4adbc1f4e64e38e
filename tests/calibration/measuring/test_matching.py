"""Events of a step are matched with the op calls of its trace. Both are lists made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from placer.calibration.measuring.events import Event
from placer.calibration.measuring.in_place import BACKWARD_NODE, match
from placer.tracing.trace_data import OpCall, Phase, TensorSpec, Trace

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


def test_the_in_place_form_is_the_same_op() -> None:
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
