"""accelerate's own loop runs where placer says, with the losses it has without placer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.integrations import accelerate as integration

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def trained(placed: bool) -> tuple[list[float], Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
    on_cpu = True
    if placed:
        placement = integration.choose(
            model, data[:8][0], loss=lambda output: output.square().mean(), optimizer=optimizer, devices="cpu"
        )
        on_cpu = integration.cpu(placement)
        assert placement.confidence == 1.0
    accelerator = accelerate.Accelerator(cpu=on_cpu)
    model, optimizer, loader, scheduler = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=8, shuffle=True), scheduler
    )
    losses = []
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
    return losses, accelerator.device


def test_training_ends_with_the_same_losses() -> None:
    without, _ = trained(placed=False)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    losses, device = trained(placed=True)
    assert losses == without
    assert device.type == "cpu"


def test_the_answer_in_accelerates_words() -> None:
    for device, on_cpu in (("cpu", True), ("cuda", False), ("cuda:1", False)):
        placement = placer.Placement(placer.Decision(device, 2, 0.9, f"{device}: because"))
        assert integration.cpu(placement) is on_cpu
