"""Where a workload is, and what it holds of each device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from placer.decision.candidates import home, residence
from placer.workload import make_workload


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(100, 100, bias=False), nn.BatchNorm1d(100, affine=False))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 100)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_what_a_step_uses_is_held_where_it_is() -> None:
    model, optimizer = trained()
    buffers = 2 * 100 * 4 + 8
    training = make_workload(model, (8, 100), mode="train", optimizer=optimizer)
    # The weight, its gradient, two moments and the step counter.
    assert residence(training, {}).held == {"cpu": 4 * 40_000 + 4 + buffers}
    assert residence(make_workload(model, (8, 100), mode="infer"), {}).held == {"cpu": 40_000 + buffers}
    by_name = make_workload(model, (8, 100), mode="train", optimizer="adam")
    assert residence(by_name, {"cuda:1": "cuda"}).held == {"cpu": 2 * 40_000 + buffers}
    assert residence(by_name, {"cuda:1": "cuda"}).fitted_as == {"cuda:1": "cuda"}


def test_tied_weights_are_held_once() -> None:
    model = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False))
    model[1].weight = model[0].weight
    assert residence(make_workload(model, (2, 10), mode="infer"), {}).held == {"cpu": 400}


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_home_is_where_all_weights_are(device: str) -> None:
    assert home([nn.Linear(4, 2, device=device)]) == "cpu"
    split = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2, device="meta"))
    assert home([split]) == "cpu"
