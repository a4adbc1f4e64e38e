"""The simulated device itself: right numbers, its own time, its own memory."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from simulated.device import SimulatedDevice
from simulated.spec import SPEC
from torch import nn


def network() -> nn.Sequential:
    # A bias before a normalization has no gradient but rounding errors, of which Adam makes whole steps.
    return nn.Sequential(
        nn.Conv1d(3, 8, 3, bias=False),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 14, 4),
        nn.Dropout(0.2),
    )


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_training_gives_the_numbers_of_the_cpu(device: SimulatedDevice, optimizer: type[torch.optim.Optimizer]) -> None:
    model = network()
    reference = copy.deepcopy(model)
    parameters = list(model.parameters())
    theirs = optimizer(reference.parameters(), lr=0.01)  # type: ignore[call-arg]
    ours = optimizer(parameters, lr=0.01)  # type: ignore[call-arg]
    model.to("sim")
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    for seed in range(3):
        x = torch.randn(8, 3, 16)
        for one, its, batch in ((reference, theirs, x), (model, ours, x.to("sim"))):
            torch.manual_seed(seed)
            its.zero_grad()
            one(batch).pow(2).mean().backward()
            its.step()
    assert {p.device.type for p in model.parameters()} == {"sim"}
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b)


def test_the_host_goes_on_while_the_device_computes(device: SimulatedDevice) -> None:
    a = torch.randn(512, 512, device="sim")
    _ = a @ a  # the first product takes the host longer
    torch.accelerator.synchronize()
    start = device.clock.now
    b = a @ a
    assert device.clock.now - start == pytest.approx(SPEC.issue)
    work = SPEC.kernel + 2 * 512**3 / SPEC.flops
    assert device.queue.free_at - start == pytest.approx(SPEC.issue + SPEC.launch + work)
    b @ a
    assert device.queue.free_at - start == pytest.approx(SPEC.issue + SPEC.launch + 2 * work)
    torch.accelerator.synchronize()
    assert device.clock.now - start == pytest.approx(SPEC.issue + SPEC.launch + 2 * work + SPEC.sync)


def test_memory_is_limited_and_given_back(device: SimulatedDevice) -> None:
    gc.collect()
    before = device.memory.used
    x = torch.empty(1 << 20, device="sim")
    assert device.memory.used == before + (4 << 20)
    view = x[10:]
    del x
    assert device.memory.used == before + (4 << 20)
    del view
    assert device.memory.used == before
    with pytest.raises(torch.OutOfMemoryError, match="sim out of memory"):
        torch.empty(SPEC.memory, device="sim")
