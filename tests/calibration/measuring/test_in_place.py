"""A step is timed whole and op by op: with times made by hand, then for real."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from placer.calibration.measuring import recording as stopwatches
from placer.calibration.measuring.events import Event
from placer.calibration.measuring.in_place import time_step
from placer.calibration.measuring.recording import Recorded, Stopwatch, Whole
from placer.calibration.measuring.speed_probe import SpeedProbe, binned
from placer.calibration.measuring.step_timing import Ends
from placer.tracing import trace
from placer.tracing.trace_data import OpCall, TensorSpec, Trace
from placer.workload import make_workload

SPEC = TensorSpec((4,), (1,), "float32")


def call(op: str) -> OpCall:
    return OpCall(op, (SPEC,), (SPEC,))


def event(name: str, start: float, end: float) -> Event:
    return Event(name, start, end, -1, 0, 0.0)


class Watched(SpeedProbe):
    """A speed probe that spent a minute at each of some ``readings`` (seconds)."""

    def __init__(self, *readings: float) -> None:
        super().__init__(1)
        for reading in readings:
            self._spent[binned(reading)] += 60.0


@pytest.mark.parametrize(
    ("readings", "whole", "lengthened", "first", "second", "recorded"),
    [((1e-4,), 4e-3, 1.25, 1e-3, 2e-3, 5e-3), ((1e-4, 6e-5), 5e-3, 1.0, 1.5e-3, 3e-3, 6.5e-3)],
)
def test_the_fastest_repetition_of_each_op_counts_on_a_quiet_machine(
    monkeypatch: pytest.MonkeyPatch,
    readings: tuple[float, ...], whole: float, lengthened: float, first: float, second: float, recorded: float,
) -> None:  # fmt: skip
    """Contention for less than a step disturbs another op each time: no repetition is undisturbed.

    What people wait for is the median step all the same. Where the machine is faster at times, what shortens an op is
    as likely as what lengthens it.
    """
    times = [(1e-3, 6e-3), (3e-3, 3e-3), (1.5e-3, 2e-3)]
    runs = [
        (Recorded(a + b + 2e-3, [event("aten::mm", 0, a), event("aten::relu", a, a + b)]), 1e-4) for a, b in times
    ]
    around = [(Whole(seconds, None), 1e-4) for seconds in (3e-3, 4e-3, 5e-3, 6e-3, 9e-3)]
    monkeypatch.setattr(Stopwatch, "in_turns", lambda *_: (around, runs))
    traced = Trace((call("aten::mm"), call("aten::relu")), "train", (), (), (), ())
    timing = time_step(lambda: None, traced, speed_probe=Watched(*readings))
    assert timing.seconds == whole
    assert timing.lengthened == lengthened
    assert [op.host_seconds for op in timing.ops] == pytest.approx([first, second])
    assert timing.recorded_seconds == pytest.approx(recorded)


def test_a_step_that_returns_the_ends_of_its_phases_is_timed_phase_by_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clearing gradients is the update's; the phases add up to the step, and a device may still be busy with them."""
    now = [0.0]

    def step() -> Ends:
        start = now[0]
        now[0] = start + 1.0  # with a last second after everything
        return Ends(cleared=start + 0.1, forward=start + 0.4, backward=start + 0.9)

    monkeypatch.setattr(stopwatches, "record", lambda *_, **__: [(Recorded(1.0, []), 0.0)] * 4)
    timing = time_step(step, Trace((), "train", (), (), (), ()), clock=lambda: now[0])
    assert timing.phases is not None
    assert dataclasses.astuple(timing.phases) == pytest.approx((0.3, 0.5, 0.2))
    accelerated = time_step(
        step, Trace((), "train", (), (), (), ()), clock=lambda: now[0], synchronize=lambda: None
    )
    assert accelerated.phases is None


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
