"""Solvers that keep the time in tensors, and those that do not."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import nn

from placer.calibration.benchmarks.kinds import Iterated
from placer.calibration.benchmarks.networks import propose
from placer.calibration.benchmarks.probe import Limit

#: Some 50 ms of a small CPU: about what a default calibration allows.
LIMIT = Limit(flops=1e9, bytes=1e8)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_solver_that_keeps_the_time_in_tensors_follows_the_same_path(stacked: bool) -> None:
    torch.manual_seed(0)
    field, start = nn.Linear(3, 3), torch.randn(2, 3)
    with torch.no_grad():
        plain, clocked = (Iterated(field, 10, 3, stacked, clocked)(start) for clocked in (False, True))
    torch.testing.assert_close(plain, clocked)


def test_both_are_drawn() -> None:
    found: set[bool] = set()
    for seed in range(200):
        with torch.device("meta"):
            built = propose(Random(seed), LIMIT).build()
        found |= {module.clocked for module in built.modules() if isinstance(module, Iterated)}
        if found == {False, True}:
            return
    pytest.fail(f"of 200 networks, only {found}")
