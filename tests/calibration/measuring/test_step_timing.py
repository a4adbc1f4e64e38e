"""A step is timed whole and op by op: events are matched with op calls, and what recording added is taken off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from placer.calibration.measuring import in_place
from placer.calibration.measuring.events import Event
from placer.calibration.measuring.in_place import BACKWARD_NODE, match, time_step
from placer.calibration.measuring.recording import Recorded, RecorderCost
from placer.calibration.measuring.step_timing import OpTiming, StepTiming, observe
from placer.calibration.measuring.timing import Phases, Timed
from placer.tracing import trace
from placer.tracing.trace_data import OpCall, Phase, TensorSpec, Trace
from placer.workload import make_workload

SPEC, OTHER = TensorSpec((1024,), (1,), "float32"), TensorSpec((8,), (1,), "float32")
FREE = RecorderCost(0.0, 0.0)


def call(op: str, phase: Phase = "forward", spec: TensorSpec = SPEC) -> OpCall:
    return OpCall(f"aten::{op}", (spec,), (spec,), phase=phase)


def traced(*calls: OpCall) -> Trace:
    return Trace(calls, "train", (), (), (), ())


def event(name: str, start: float, end: float, *, inside: int = 0, sequence: int = -1) -> Event:
    return Event(name if "::" in name or "#" in name else f"aten::{name}", start, end, sequence, inside, 0.0)


def node(start: float, end: float, sequence: int, inside: int = 0) -> Event:
    return event(f"{BACKWARD_NODE}: X", start, end, sequence=sequence, inside=inside)


MM, RELU, LATE_MM = event("mm", 0, 1), event("relu", 1, 3), event("mm", 3, 7)
NORM = [
    event("batch_norm", 0, 9, inside=2),
    event("cudnn_batch_norm", 1, 8, inside=1),
    event("empty", 2, 3),
    event("relu", 9, 10),
    node(20, 30, -1),
    event("cudnn_batch_norm_backward", 21, 24),
]
#: The engine's time between its nodes is the op's as well.
LSTM = [
    event("lstm", 0, 10, inside=2),
    event("mm", 1, 2, sequence=7),
    event("tanh", 3, 4, sequence=8),
    event("sum", 11, 12, sequence=9),
    node(13, 14, 9),
    node(14, 17, 8, 1),
    event("tanh_backward", 15, 16),
    node(20, 25, 7, 2),
]
UPDATE = OpCall("optimizer::Adam", (SPEC,), (SPEC,), phase="optimizer")
MATCHES: dict[str, tuple[list[OpCall], Sequence[Event], list[float | None]]] = {
    "in order": ([call("mm"), call("relu"), call("mm")], [MM, RELU, LATE_MM], [1, 2, 4]),
    "an event inside a matched one is not another call": (
        [call("mm"), call("mm")],
        [event("mm", 0, 4, inside=1), event("mm", 1, 2), event("mm", 5, 6)],
        [4, 1],
    ),
    "a skipped op costs only itself": (
        [call("mm"), call("mul"), call("relu"), call("add"), call("mul")],
        [MM, RELU, event("add", 3, 6), event("mul", 7, 8)],
        [1, None, 2, 3, 1],
    ),
    "the in-place form is the same op": ([call("add")], [event("add_", 0, 2)], [2]),
    "a GPU's batch norm goes by its library's name": (
        [call("native_batch_norm"), call("relu"), call("native_batch_norm_backward", "backward")],
        NORM,
        [7, 1, 3],
    ),
    "a whole op's backward is found by sequence number": (
        [call("lstm"), call("sum", "loss"), call("lstm_backward", "backward")],
        LSTM,
        [10, 1, 25 - 14],
    ),
    "an optimizer's step is shared evenly": (
        [call("mm"), UPDATE, UPDATE],
        [MM, event("Optimizer.step#Adam.step", 2, 10, inside=20)],
        [1, 4, 4],
    ),
}


@pytest.mark.parametrize("case", MATCHES)
def test_events_are_matched_with_calls(case: str) -> None:
    calls, events, expected = MATCHES[case]
    found = match(traced(*calls), events)
    assert [t and t.call for t in found] == [None if s is None else c for c, s in zip(calls, expected, strict=True)]
    assert [t and t.host_seconds for t in found] == [s and pytest.approx(s) for s in expected]


@pytest.mark.parametrize("added", [60e-6, 130e-6, 300e-6])
def test_what_recording_cost_in_this_very_step_is_subtracted(added: float) -> None:
    """With the average step's cost instead, ops inside fast loops would lose half of their own time."""
    loop = OpTiming(call("rnn_tanh"), 2e-4 + added, 600, 0.0)
    step, average = StepTiming(2e-4, 0.01, 2e-4 + added, 601, (loop,), 1.0), RecorderCost(0.0, 0.45e-6)
    assert step.undisturbed_share(average) * loop.corrected(step.recording(average)) == pytest.approx(2e-4, rel=0.03)


def gaps(forward: float | None, loss: float | None, backward: float | None, phases: Phases | None) -> Any:
    """Those of a step of 1 second, of an op in each phase and their seconds; None where no event was found."""
    timed = {call("exp"): forward, call("sum", "loss"): loss, call("mul", "backward"): backward}
    ops = tuple(OpTiming(op, seconds, 0, 0.0) for op, seconds in timed.items() if seconds is not None)
    timing = StepTiming(1.0, 0.0, 1.0, 0, ops, 1.0, phases=phases)
    return observe(traced(*timed), timing, device="cpu", threads=1, family="network", name="x", recorder=FREE).gaps


def test_gaps_are_phases_without_their_ops_and_known_where_no_op_is_missing() -> None:
    phases = {"forward": 0.3, "backward": 0.5, "update": 0.2}
    assert gaps(0.1, 0.1, 0.2, phases) == pytest.approx({"forward": 0.1, "backward": 0.3, "update": 0.2})
    assert set(gaps(None, 0.1, 0.1, phases)) == set(gaps(0.1, None, 0.1, phases)) == {"backward", "update"}
    assert gaps(0.1, 0.1, 0.2, None) == {}


def test_the_middle_repetitions_are_lengthened_to_the_middle_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contention for less than a step disturbs another op each time, and every step."""
    times = [(1e-3, 6e-3), (4e-3, 3e-3), (1e-3, 3e-3), (3e-3, 3e-3), (1e-3, 5e-3)]
    runs = [Recorded(a + b + 2e-3, [event("mm", 0, a), event("relu", a, a + b)]) for a, b in times]
    around = [Timed(seconds, {"forward": 1.0, "update": 3.0}) for seconds in (3e-3, 4e-3, 5e-3, 6e-3, 9e-3)]
    monkeypatch.setattr(in_place, "in_turns", lambda *_, **__: (around, runs))
    timing = time_step(lambda: None, traced(call("mm"), call("relu")))
    assert [op.host_seconds for op in timing.ops] == pytest.approx([1e-3, 3e-3])
    assert (timing.seconds, timing.recorded_seconds) == pytest.approx((5e-3, 8e-3))
    assert timing.lengthened == pytest.approx(8e-3 / 6e-3)
    assert timing.phases == pytest.approx({"forward": 1.25e-3, "update": 3.75e-3})  # those of the middle step


def test_a_real_step_is_matched_almost_whole() -> None:
    model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14, 4))
    data = torch.randn(8, 3, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)
    real = trace(make_workload(model, batch=(data,), mode="train", optimizer="adam", data="device"))

    def step() -> None:
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    timing = time_step(step, real, seconds=0.05)
    assert timing.matched >= 0.9
    assert timing.events >= len(timing.ops)
    assert 0 < sum(op.host_seconds for op in timing.ops) < 3 * timing.recorded_seconds
    assert {op.call.phase for op in timing.ops} == {"forward", "loss", "backward", "optimizer"}
