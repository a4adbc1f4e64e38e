"""What a training script holds on to keeps working when the model moves, and comes back for checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from simulated.device import SimulatedDevice
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.placement.batches import MovedBatches, Staging

pytestmark = pytest.mark.usefixtures("device")
SIM = torch.device("sim")


class Tied(nn.Module):
    """Tied weights, a buffer, and layers large enough to pay on the accelerator."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(256, 256)
        self.second = nn.Linear(256, 256)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.second(torch.tanh(self.first(x))) * self.scale)


def train(model: nn.Module, optimizer: Any, scheduler: Any, x: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.item()


def test_everything_that_must_move_moves_and_references_hold(profile_file: Path) -> None:
    losses: list[list[float]] = []
    for device in ("cpu", "sim"):
        torch.manual_seed(0)
        model = Tied()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        x = torch.randn(512, 256)
        losses.append([train(model, optimizer, scheduler, x)])
        parameters = [id(p) for p in model.parameters()]
        group = optimizer.param_groups[0]
        placement = placer.choose(model, (512, 256), optimizer=optimizer, profile=profile_file, devices=device)
        assert placement.decision.device == device
        assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {device}
        assert model.second.weight is model.first.weight
        assert [id(p) for p in model.parameters()] == [id(p) for p in group["params"]] == parameters
        assert optimizer.state[model.first.weight]["exp_avg"].device.type == device
        losses[-1] += [train(model, optimizer, scheduler, placement.to(x)) for _ in range(3)]
        assert group["lr"] == pytest.approx(1e-2 / 16)  # the scheduler still drives the same group
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_checkpoints_come_back_and_can_be_loaded_anywhere(profile_file: Path, tmp_path: Path) -> None:
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    placement = placer.choose(model, (512, 256), optimizer=optimizer, profile=profile_file, devices="sim")
    train(model, optimizer, scheduler, placement.to(torch.randn(512, 256)))
    state = placement.host({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert {t.device.type for t in state["model"].values()} == {"cpu"}
    assert {p.device.type for p in model.parameters()} == {"sim"}
    torch.save(state, tmp_path / "checkpoint.pt")
    loaded = torch.load(tmp_path / "checkpoint.pt")
    other = Tied()
    other.load_state_dict(loaded["model"])
    again = torch.optim.Adam(other.parameters())
    again.load_state_dict(loaded["optimizer"])
    assert torch.equal(other.first.weight, model.first.weight.cpu())
    # And the model itself goes back the way it came.
    placer.choose(model, (512, 256), optimizer=optimizer, profile=profile_file, devices="cpu")
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"cpu"}
    x = torch.randn(4, 256)
    torch.testing.assert_close(model(x), other(x))


def test_batches_are_staged_through_pinned_memory_where_that_is_faster(device: SimulatedDevice) -> None:
    data = TensorDataset(torch.randn(32, 4), torch.arange(32))
    always, pinned = Staging((1.0, 1.0), (0.0, 0.0), 0.0, 0.0), []
    real = torch.Tensor.pin_memory
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "pin_memory", lambda self: (pinned.append(1), real(self))[1])
        for stage, count in ((always, 8), (None, 0)):
            pinned.clear()
            got = list(MovedBatches(DataLoader(data, batch_size=8), SIM, stage))
            assert len(pinned) == count
            assert torch.equal(torch.cat([x.cpu() for x, _ in got]), data.tensors[0])
            assert torch.equal(torch.cat([y.cpu() for _, y in got]), data.tensors[1])
