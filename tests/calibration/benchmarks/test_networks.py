"""Which random networks are drawn, their losses, and solvers that keep the time."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import nn

from placer.calibration.benchmarks import networks
from placer.calibration.benchmarks.functions import LOSSES, loss_named
from placer.calibration.benchmarks.kinds import Iterated
from placer.calibration.benchmarks.networks import propose
from placer.calibration.benchmarks.probe import Limit
from placer.tracing import trace
from placer.workload import make_workload

#: Some 50 ms of a small CPU: about what a default calibration allows.
LIMIT = Limit(flops=1e9, bytes=1e8)


def test_networks_of_all_kinds_are_drawn() -> None:
    probes = [propose(Random(seed), LIMIT) for seed in range(60)]
    with torch.device("meta"):
        drawn = [(probe, probe.build()) for probe in probes]
    assert {probe.name.split()[0] for probe in probes} == {kind.__name__ for kind in networks.KINDS}
    losses = {probe.name.partition(" ")[2].partition(" ")[2] for probe in probes}
    assert {"", "mse", "cross_entropy"} < losses <= {"", *LOSSES}
    sequences = {(probe.name.split()[0], isinstance(built, nn.Sequential)) for probe, built in drawn}
    # A network of one layer is that layer; a solver is one module, which calls another again and again.
    assert {("cnn", True), ("transformer", True), ("single", False), ("solver", False)} <= sequences
    modules = [module for _, built in drawn for module in built.modules()]
    assert any(isinstance(module, Iterated) for module in modules)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_solver_that_keeps_the_time_in_tensors_follows_the_same_path(stacked: bool) -> None:
    torch.manual_seed(0)
    field, start = nn.Linear(3, 3), torch.randn(2, 3)
    with torch.no_grad():
        plain, clocked = (Iterated(field, 10, 3, stacked, clocked)(start) for clocked in (False, True))
    torch.testing.assert_close(plain, clocked)


@pytest.mark.parametrize("name", LOSSES)
def test_networks_are_trained_by_losses(name: str) -> None:
    loss = loss_named(name)
    assert loss is not None
    traced = trace(make_workload(nn.Linear(4, 3), batch=(torch.randn(2, 5, 4),), mode="train", loss=loss))
    ran = {call.op.removeprefix("aten::") for call in traced.calls if call.phase == "loss"}
    expected = {"cross_entropy": "nll_loss_forward", "bce": "binary_cross_entropy_with_logits", "l1": "abs"}
    assert expected.get(name, f"{name}_loss") in ran
    several = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    assert loss(several).item() == 5.0  # what is not one tensor is summed
