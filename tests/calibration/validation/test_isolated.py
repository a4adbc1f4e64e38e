"""The sum of ops timed alone, on a real step and on a clock that ticks."""

from __future__ import annotations

import torch
from ticking import Clock
from torch import nn

from placer.calibration.validation import cells
from placer.calibration.validation.cells import isolated_seconds


def test_every_op_counts_its_fastest_turn_and_a_writing_op_is_run_once() -> None:
    left, right = torch.ones(4), torch.ones(4)

    def step() -> None:
        torch.add(left, right)
        left.mul_(2.0)

    # Each turn reads the clock twice, a tick apart: one tick per op.
    assert isolated_seconds(step, clock=Clock()) == 2.0
    assert left.tolist() == [2.0] * 4


def test_backward_and_update_are_part_of_it() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)
    seen: list[str] = []

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()

    class Noting(cells._EachOpHot):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs)

    with Noting(Clock()) as mode:
        step()
    assert mode.seconds >= len(seen) > 0
    assert "aten.addmm.default" in seen
    assert "aten.threshold_backward.default" in seen
    assert any("addcdiv" in name for name in seen)
