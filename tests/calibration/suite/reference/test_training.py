"""Each system really trains on the device that was chosen for it, and its loss falls."""

from __future__ import annotations

import statistics

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.calibration.suite.reference import ENTRIES
from placer.profile.profile import Profile

#: By entry: rows of data, batch size, steps, learning rate. As short as shows that the loss falls.
RUNS = {
    "lorenz_dopri5": (1, 1, 8, 0.01),
    "surface_whole_data": (200, 200, 60, 0.08),
    "surface_data_loader": (256, 32, 40, 0.08),
    "mnist_example_training": (64, 16, 12, 1.0),
    "conv1d_training": (256, 64, 40, 0.01),
    "tabnet_regressor_training": (256, 128, 20, 0.02),
    "gru_training": (64, 32, 15, 0.01),
    "scratch_cnn_by_index": (64, 8, 24, 0.05),
    "scratch_cnn_by_mask": (64, 8, 24, 0.05),
    "scratch_cnn_large": (16, 8, 8, 0.02),
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_every_system_that_trains_is_tried() -> None:
    assert set(RUNS) == {entry.name for entry in ENTRIES if "train" in entry.modes}


@pytest.mark.usefixtures("calibrated")
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.soak) if name.startswith("tabnet") else name for name in RUNS
])
def test_the_loss_falls_on_the_chosen_device(name: str) -> None:
    entry = next(entry for entry in ENTRIES if entry.name == name)
    rows, batch, steps, rate = RUNS[name]
    model = entry.build()
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD, "adadelta": torch.optim.Adadelta}[entry.optimizer]
    optimizer = kind(model.parameters(), lr=rate)
    inputs, targets = entry.example(rows)
    placement = placer.choose(
        model, example=entry.example(batch), loss=entry.loss, optimizer=optimizer, data=entry.data or "host",
        steps=steps,
    )  # fmt: skip
    assert placement.confidence is not None  # it was predicted, not placed by the usual rule
    # A trajectory has its points first: there is one, and it is the whole batch.
    whole = rows == batch
    loader = [(inputs, targets)] if whole else DataLoader(TensorDataset(inputs, targets), batch)
    losses: list[float] = []
    while len(losses) < steps:
        for x, y in placement.batches(loader):
            optimizer.zero_grad()
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert next(model.parameters()).device.type == placement.device.split(":")[0]
    third = max(steps // 4, 2)
    assert statistics.mean(losses[-third:]) < 0.95 * statistics.mean(losses[:third])


def test_the_profile_is_the_one_that_was_made_by_hand(calibrated: Profile) -> None:
    assert calibrated.devices() == ("cpu", "cuda")
