"""Which random networks are drawn, their losses, layers around other layers, and solvers that keep the time."""

from __future__ import annotations

import statistics
from random import Random

import pytest
import torch
from torch import nn

from placer.calibration.benchmarks import networks
from placer.calibration.benchmarks.functions import LOSSES, loss_named
from placer.calibration.benchmarks.kinds import Iterated
from placer.calibration.benchmarks.layers import InParts
from placer.calibration.benchmarks.networks import propose
from placer.calibration.benchmarks.probe import Apply, Limit, Probe
from placer.tracing import trace
from placer.workload import make_workload

#: Some 50 ms of a small CPU: about what a default calibration allows.
LIMIT = Limit(flops=1e9, bytes=1e8)


@pytest.fixture(scope="module")
def drawn() -> list[tuple[Probe, nn.Module]]:
    """Networks and what they build."""
    probes = [propose(Random(seed), LIMIT) for seed in range(100)]
    with torch.device("meta"):
        return [(probe, probe.build()) for probe in probes]


def test_the_larger_of_networks_that_fit_is_taken() -> None:
    """Most that are drawn are far smaller than what they may be: then only small ones would ever be measured."""

    def parameters(fitting: int) -> float:
        with pytest.MonkeyPatch.context() as patch, torch.device("meta"):
            patch.setattr(networks, "FITTING", fitting)
            built = [propose(Random(seed), LIMIT).build() for seed in range(24)]
        return statistics.median(sum(p.numel() for p in one.parameters()) for one in built)

    assert parameters(3) > parameters(1)


def test_networks_of_all_kinds_are_drawn(drawn: list[tuple[Probe, nn.Module]]) -> None:
    losses = {probe.name.partition(" ")[2].partition(" ")[2] for probe, _ in drawn}
    assert {"", "mse", "cross_entropy"} < losses <= {"", *LOSSES}
    assert set(networks.DRAWN_LOSSES) == {"", *LOSSES}
    assert all(probe.mode == "train" for probe, _ in drawn if probe.loss)
    sequences: dict[str, set[bool]] = {}
    for probe, built in drawn:
        sequences.setdefault(probe.name.split()[0], set()).add(isinstance(built, nn.Sequential))
    assert sequences["cnn"] == sequences["transformer"] == {True}
    # A network of one layer is that layer; a solver is one module, which calls another again and again.
    assert sequences["single"] == sequences["solver"] == {False}
    modules = [module for _, built in drawn for module in built.modules()]
    assert any(isinstance(module, InParts) for module in modules)
    assert {module.clocked for module in modules if isinstance(module, Iterated)} == {False, True}


def test_parts_of_a_batch_are_put_together_again() -> None:
    rows = torch.randn(7, 3)
    assert torch.equal(InParts(nn.Identity(), 3)(rows), rows)
    lengths = InParts(Apply(lambda part: torch.tensor([len(part)])), 3)(rows)
    assert lengths.tolist() == [3, 2, 2]  # never one row beside larger parts: it has no variance to normalize by


@pytest.mark.parametrize("stacked", [False, True])
def test_a_solver_that_keeps_the_time_in_tensors_follows_the_same_path(stacked: bool) -> None:
    torch.manual_seed(0)
    field, start = nn.Linear(3, 3), torch.randn(2, 3)
    with torch.no_grad():
        plain, clocked = (Iterated(field, 10, 3, stacked, clocked)(start) for clocked in (False, True))
    torch.testing.assert_close(plain, clocked)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(2, 5, 4), (4,)])
def test_networks_are_trained_by_losses(name: str, shape: tuple[int, ...]) -> None:
    loss = loss_named(name)
    assert loss is not None
    traced = trace(make_workload(nn.Linear(4, 3), batch=(torch.randn(shape),), mode="train", loss=loss))
    ran = {call.op.removeprefix("aten::") for call in traced.calls if call.phase == "loss"}
    expected = {"cross_entropy": "nll_loss_forward", "bce": "binary_cross_entropy_with_logits", "l1": "abs"}
    assert expected.get(name, f"{name}_loss") in ran
    several = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
    assert loss(several).item() == 5.0  # what is not one tensor is summed
