"""Losses of networks, by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from placer.calibration.benchmarks.functions import LOSSES, loss_named
from placer.tracing import trace
from placer.workload import make_workload


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(2, 4), (2, 5, 4), (4,)])
def test_networks_are_trained_by_losses(name: str, shape: tuple[int, ...]) -> None:
    loss = loss_named(name)
    assert loss is not None
    traced = trace(make_workload(nn.Linear(4, 3), example=(torch.randn(shape),), mode="train", loss=loss))
    ran = {call.op.removeprefix("aten::") for call in traced.calls if call.phase == "loss"}
    expected = {"cross_entropy": "nll_loss_forward", "bce": "binary_cross_entropy_with_logits", "l1": "abs"}
    assert expected.get(name, f"{name}_loss") in ran
    several = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    assert loss(several).item() == 5.0  # what is not one tensor is summed
