"""Compiled steps: traced as the eager steps they stand for, with the values that pass between their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from forwards import module
from torch import Tensor, nn
from torch._dynamo.utils import counters

from placer.tracing import Trace, trace
from placer.workload import make_workload


def net() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))


def traced(model: Any, mode: str = "infer", **arguments: Any) -> Trace:
    return trace(make_workload(model, (4, 8), mode=mode, **arguments))


def number(found: Trace, op: str, phase: str = "forward") -> int:
    return next(i for i, call in enumerate(found.calls) if call.op == op and call.phase == phase)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_the_calls_are_those_of_the_eager_step_and_nothing_is_compiled(mode: str) -> None:
    counters.clear()
    model = net().train(mode == "train")
    compiled = torch.compile(model, mode="reduce-overhead")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    eager, found = traced(model, mode), traced(compiled, mode)
    assert found.calls == eager.calls
    assert (eager.compiled, eager.dataflow) == (None, ())
    assert found.compiled == "reduce-overhead"
    assert len(found.dataflow) == len(found.calls)
    assert not counters["frames"]
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_views_are_the_value_they_show_and_writes_in_place_make_a_new_one() -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        y = x + 1
        left, right = y.chunk(2, dim=1)
        return (left * right).relu_()

    found = traced(torch.compile(module(forward)))
    flow = found.dataflow
    (made,) = flow[number(found, "aten::add")][1]
    product = flow[number(found, "aten::mul")]
    assert product[0] == (made, made)
    assert flow[number(found, "aten::relu_")][0] == product[1]
    assert flow[number(found, "aten::relu_")][1] != product[1]


def _training(model: nn.Module) -> Callable[[Tensor], None]:
    def step(x: Tensor) -> None:
        model(x).sum().backward()

    return step


def test_steps_that_are_compiled_in_part_say_that_they_are_priced_as_eager() -> None:
    model = nn.Linear(8, 8)
    whole = traced(torch.compile(_training(model)), "train", modules=model)
    assert whole.compiled is None
    assert any("runs a backward pass" in note for note in whole.notes)
    inner = torch.compile(nn.Linear(8, 8))
    part = traced(nn.Sequential(nn.ReLU(), inner))
    assert part.compiled is None
    assert any("parts of it are compiled: 1" in note for note in part.notes)
    step = traced(_training(inner), "train", modules=inner)
    assert any("the module of the step function" in note for note in step.notes)
