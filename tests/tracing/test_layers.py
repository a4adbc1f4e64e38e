"""Calls are attributed to the layer whose forward made them, in backward too."""

from __future__ import annotations

import copy
from typing import Any

import torch
from forwards import module
from torch import nn
from torch.utils.checkpoint import checkpoint

from placer.tracing import trace
from placer.workload import make_workload


def block() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x))).tanh()

    return module(forward, up=nn.Linear(4, 8), down=nn.Linear(8, 4))


def net(checkpointed: bool = False) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        return self.head(x).exp()

    return module(forward, blocks=nn.ModuleList([block(), block()]), head=nn.Linear(4, 1))


def layers_of(model: nn.Module, op: str, phase: str) -> list[str]:
    traced = trace(make_workload(model, (5, 4), mode="train"))
    return [c.layer for c in traced.calls if c.op == op and c.phase == phase]


def test_forward_and_backward_agree() -> None:
    forward = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down", "head"]
    assert layers_of(net(), "aten::addmm", "forward") == forward
    assert list(dict.fromkeys(layers_of(net(), "aten::mm", "backward"))) == forward[::-1]
    assert layers_of(net(), "aten::tanh", "forward") == ["blocks.0", "blocks.1"]
    assert layers_of(net(), "aten::tanh_backward", "backward") == ["blocks.1", "blocks.0"]
    assert layers_of(net(), "aten::exp", "forward") == [""]


def test_gradients_accumulate_at_the_owner_of_a_tied_weight() -> None:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    tied = module(lambda self, x: self.b(self.a(x)), a=first, b=second)
    traced = trace(make_workload(tied, (5, 4), mode="train"))
    assert len(traced.parameters) == 1
    assert [c.layer for c in traced.calls if c.phase == "optimizer"] == ["a"]
    added = [c for c in traced.calls if c.phase == "backward" and c.op in ("aten::add", "aten::add_")]
    assert len(added) == 1


def test_checkpointed_layers_run_forward_again_inside_backward() -> None:
    again = layers_of(net(checkpointed=True), "aten::addmm", "backward")
    # The backward of `down` needs its input, so recomputation stops before it.
    assert again[:1] == ["blocks.1.up"]
    assert set(again) <= {"blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"}


def test_a_copy_that_the_step_makes_of_a_layer_is_that_layer() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(copy.deepcopy(self.layer)(x) + self.layer(x)))

    model = module(forward, layer=nn.Linear(4, 4), last=nn.Linear(4, 2))
    found = trace(make_workload(model, (3, 4), mode="infer"))
    ran = [(call.op, call.layer) for call in found.calls if call.op in ("aten::addmm", "aten::relu")]
    assert ran == [*[("aten::addmm", "layer")] * 2, ("aten::relu", ""), ("aten::addmm", "last")]
    assert found.module_calls == 4
