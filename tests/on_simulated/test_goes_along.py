"""What goes along with a model that moves, what stays where it was, and what a rank of several calls its device."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from on_simulated.two_devices import Assemble, faster_on
from simulated.device import SimulatedDevice
from simulated.spec import SPEC
from torch import nn

import placer
from placer import PlacerWarning, machine
from placer.decision import ranks
from placer.placement import moving


def chosen(model: nn.Module, fast: str = "sim", **options: Any) -> placer.Placement:
    return placer.choose(model, (4, 8), profile=faster_on(fast), **options)


# --- optimizer state --------------------------------------------------------------------------------------------------


def test_state_of_parameters_that_stay_stays_with_them(device: SimulatedDevice) -> None:
    """Of two models with one optimizer that has state, each can be moved, and the next step runs."""
    a, b = nn.Linear(8, 3), nn.Linear(8, 3)
    optimizer = torch.optim.Adam([*a.parameters(), *b.parameters()])
    (a(torch.ones(2, 8)) + b(torch.ones(2, 8))).sum().backward()
    optimizer.step()
    placement = chosen(a, optimizer=optimizer)
    assert placement.decision.device == "sim"
    assert optimizer.state[a.weight]["exp_avg"].device.type == "sim"
    assert optimizer.state[b.weight]["exp_avg"].device.type == "cpu"
    (a(placement.to(torch.ones(2, 8))).cpu() + b(torch.ones(2, 8))).sum().backward()
    optimizer.step()


# --- the loss ---------------------------------------------------------------------------------------------------------


class Centers(nn.Module):
    """A loss that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.ones(3))

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output - self.centers).square().mean() + nn.functional.cross_entropy(output, target)

    def distance(self, output: torch.Tensor, target: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return scale * self.forward(output, target)


CLASSES = torch.zeros(4, dtype=torch.int64)


def test_the_loss_goes_where_its_model_goes_and_comes_back_with_it(device: SimulatedDevice) -> None:
    weighted, centers = nn.CrossEntropyLoss(torch.ones(3)), Centers()
    partial = functools.partial(centers.distance, scale=2.0)
    losses = (weighted, weighted), (centers, centers), (centers, centers.distance), (centers, partial)
    for module, loss in losses:
        model = nn.Linear(8, 3)
        optimizer = torch.optim.Adam([*model.parameters(), *module.parameters()])
        for fast in ("sim", "cpu", "sim"):
            placement = chosen(model, fast, loss=loss, target=CLASSES, optimizer=optimizer)
            assert placement.decision.device == fast
            assert {t.device.type for t in (*module.parameters(), *module.buffers())} == {fast}
            optimizer.zero_grad()
            loss(model(placement.to(torch.randn(4, 8))), placement.to(CLASSES)).backward()
            optimizer.step()


def test_the_loss_is_back_where_it_was_when_the_device_refuses(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, loss = nn.Linear(8, 3), Centers()
    optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()])
    loss(model(torch.randn(4, 8)), CLASSES).backward()
    optimizer.step()
    centers, values = loss.centers, loss.centers.detach().clone()

    def refused(optimizer: torch.optim.Optimizer) -> None:
        assert loss.centers.device.type == "sim"
        raise torch.OutOfMemoryError("sim out of memory")

    monkeypatch.setattr(moving, "move_optimizer", refused)
    with pytest.warns(PlacerWarning, match="the move to sim failed") as caught:
        placement = chosen(model, loss=loss, target=CLASSES, optimizer=optimizer)
    assert len(caught) == 1
    assert placement.decision.device == "cpu"
    assert loss.centers is centers
    assert torch.equal(centers, values)
    loss(model(torch.randn(4, 8)), CLASSES).backward()
    optimizer.step()


# --- batches ----------------------------------------------------------------------------------------------------------


def test_batches_of_graphs_and_jagged_rows_arrive_where_dense_ones_are_staged(device: SimulatedDevice) -> None:
    """A graph network's batch is its nodes and a sparse adjacency."""
    nodes, adjacency = torch.randn(4, 8), torch.eye(4).to_sparse()
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    placement = chosen(nn.Linear(8, 2))
    assert placement._staging is not None
    assert placement._staging.pays(nodes.nbytes, 1)
    for x, neighbours, rows in placement.batches([(nodes, adjacency, jagged)] * 2):
        assert x.device.type == neighbours.device.type == rows.device.type == "sim"
        assert torch.equal(torch.sparse.mm(neighbours, x).cpu(), nodes)
        assert rows.is_nested


# --- ranks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _second_rank(assemble: Assemble, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the second of two processes, on a machine with two accelerators."""
    assemble(SPEC, SPEC)
    monkeypatch.setattr(ranks, "_store", lambda: None)
    for name, value in (("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("RANK", "1")):
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_second_rank")
@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (None, "sim:1"),
        (["cpu", "sim"], "sim:1"),
        (torch.device("sim"), "sim:1"),
        (["sim:0"], "sim"),
        (torch.device("sim", 0), "sim"),
        ("cpu", "cpu"),
    ],
)
def test_a_kind_of_device_is_the_rank_s_own_one(devices: Any, expected: str) -> None:
    """A number that the user gave is the user's."""
    model = nn.Linear(8, 2)
    assert chosen(model, devices=devices).decision.device == expected
    assert machine.normal_device(str(model.weight.device)) == expected


@pytest.mark.usefixtures("_second_rank")
@pytest.mark.parametrize(("value", "expected"), [("sim", "sim:1"), ("sim:0", "sim"), ("cpu", "cpu")])
def test_so_it_is_where_the_environment_names_it(value: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_DEVICE", value)
    model = nn.Linear(8, 2)
    assert chosen(model).decision.device == expected
    assert machine.normal_device(str(model.weight.device)) == expected
