"""What an update takes on a CPU: by the ops that it runs, whoever wrote it, and in the form that its flags ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from placer.pricing import predict
from placer.profile import load, shipped_folder
from placer.tracing import Trace, trace
from placer.workload import make_workload

PROFILE = load(shipped_folder() / "amd-epyc-avx512-2-core.json")


class Bag(nn.Module):
    """Equal parameters, each of which gets a gradient at the cost of one addition."""

    def __init__(self, count: int, *shape: int) -> None:
        super().__init__()
        self.shape = shape
        self.tensors = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        for tensor in self.tensors:
            x = x + tensor
        return x


def traced(model: Bag, optimizer: Callable[[Any], torch.optim.Optimizer]) -> Trace:
    return trace(make_workload(model, model.shape, mode="train", optimizer=optimizer(model.parameters())))


def seconds(model: Bag, optimizer: Callable[[Any], torch.optim.Optimizer]) -> float:
    return predict(traced(model, optimizer), PROFILE, devices=("cpu",), threads=1)["cpu"].step_seconds


@pytest.mark.parametrize("size", [64, 256, 1024])
def test_the_products_of_muon_are_in_its_price(size: int) -> None:
    model = Bag(2, size, size)
    assert seconds(model, torch.optim.Muon) > 1.5 * seconds(model, torch.optim.AdamW)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_forms_of_an_update_are_priced_apart(kind: Any) -> None:
    """Fifty small tensors: the loop calls every op from Python, for each of them."""
    model = Bag(50, 64)
    loop, foreach = seconds(model, kind), seconds(model, lambda ps: kind(ps, foreach=True))
    assert seconds(model, lambda ps: kind(ps, fused=True)) < foreach < loop


@pytest.mark.parametrize("flag", ["foreach", "fused"])
def test_an_op_over_a_list_takes_the_longer_the_more_tensors_it_has(flag: str) -> None:
    def of_update(count: int) -> float:
        step = traced(Bag(count, 64), lambda ps: torch.optim.Adam(ps, **{flag: True}))
        priced = predict(step, PROFILE, devices=("cpu",), threads=1)["cpu"].priced
        return sum(t for call, t in zip(step.calls, priced.seconds, strict=True) if f"_{flag}_ad" in call.op)

    assert of_update(40) > 2.0 * of_update(10) > 0.0
