"""Weights that nobody draws, until a step has to run."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from placer.tracing import trace
from placer.workload import make_workload
from placer.workload.target import LEAST_ELEMENTS, Undrawn

WIDE = 512
assert WIDE * WIDE >= LEAST_ELEMENTS


def test_large_weights_are_zeros_until_they_are_drawn() -> None:
    with Undrawn() as undrawn:
        net = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Embedding(WIDE, WIDE, padding_idx=0), nn.Linear(8, 8))
        given = torch.randn(WIDE, WIDE)
    assert [layer.weight.count_nonzero().item() > 0 for layer in net] == [False, False, True]
    assert given.std().item() == pytest.approx(1.0, rel=0.05)
    undrawn.draw()
    assert [layer.weight.std().item() > 0.01 for layer in net] == [True, True, True]
    assert all(layer.weight.requires_grad and layer.weight.is_leaf for layer in net)


def test_what_a_constructor_computes_is_as_it_was() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.TransformerEncoderLayer(WIDE, 8), nn.BatchNorm1d(4))

    with Undrawn():
        undrawn = build()
    plain = build()
    shapes = [[(n, t.shape, t.dtype, t.requires_grad) for n, t in m.state_dict().items()] for m in (undrawn, plain)]
    assert shapes[0] == shapes[1]
    for name, value in undrawn.named_parameters():
        if "norm" in name or name.startswith("1."):
            assert torch.equal(value, dict(plain.named_parameters())[name])


@pytest.mark.parametrize("reads", [False, True])
def test_only_a_step_that_runs_is_drawn_for(reads: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(WIDE, WIDE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.body(x)
            if reads and out.std().item() == 0.0:
                raise ValueError("nobody has drawn")
            return out

    with Undrawn() as undrawn:
        net = Net()
    given = make_workload(net, example=torch.ones(2, WIDE), mode="infer")
    workload = dataclasses.replace(given, draw=undrawn.draw)
    assert trace(workload).real == reads
    assert net.body.weight.count_nonzero().item() == 0  # in the child, if at all
