"""What ``decision/test_advice.py`` finds advised, on real networks: it takes less time on whatever machine this is."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from placer.decision.measured import step_on
from placer.workload import Workload, make_workload

pytestmark = pytest.mark.soak


class Activated(nn.Module):
    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.first, self.function = nn.Linear(16, 256), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for _ in range(6):
            x = self.function(x)
        return x


def seconds(workloads: list[Workload], rounds: int = 20) -> list[float]:
    """The shortest step of each, by turns: what a machine can do when nothing disturbs it."""
    steps = [step_on(workload, "cpu") for workload in workloads]
    for step in steps:
        step()
    best = [float("inf")] * len(steps)
    for _ in range(rounds):
        for number, step in enumerate(steps):
            start = time.perf_counter()
            step()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def test_a_larger_batch_takes_less_time_per_row() -> None:
    net = nn.Sequential(nn.Linear(84, 64), nn.ReLU(), nn.Linear(64, 1))
    small, large = seconds([make_workload(net, (n, 84), mode="train") for n in (16, 64)])
    assert large / 64 < small / 16


def test_another_activation_takes_less_time() -> None:
    before, after = seconds([make_workload(Activated(f), (512, 16), mode="train") for f in (nn.Mish(), nn.SiLU())])
    assert after < before
