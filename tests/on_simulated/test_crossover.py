"""A step as predicted and as the device takes it."""

from __future__ import annotations

import pytest
import torch
from simulated.device import DEVICE, SimulatedDevice
from torch import nn

from placer.calibration.measuring.step import Step, make_optimizer
from placer.pricing.predict import predict
from placer.profile.profile import Profile
from placer.tracing import trace
from placer.workload import Workload, make_workload


def workload(batch: int, data: str) -> Workload:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
    return make_workload(model, batch=(torch.randn(batch, 64),), mode="train", optimizer="adam", data=data)


def measured(work: Workload) -> float:
    """Seconds of a step in a row of steps."""
    step = Step(work, "sim", make_optimizer(work.model.to("sim"), "adam"))  # type: ignore[union-attr]
    step.prepare()
    marks = []
    for _ in range(4):
        step()
        marks.append(max(DEVICE.clock.now, DEVICE.queue.free_at))
    return marks[-1] - marks[-2]


@pytest.mark.parametrize("data", ["host", "pinned", "device"])
@pytest.mark.parametrize("batch", [16, 2048])
def test_steps_are_predicted_wherever_batches_live(
    batch: int, data: str, device: SimulatedDevice, with_its_host: Profile
) -> None:
    """A step that waits for the host and one that waits for the device."""
    predicted = predict(trace(workload(batch, data)), with_its_host, devices=("sim",), data=data)["sim"]
    assert predicted.step_seconds == pytest.approx(measured(workload(batch, data)), rel=0.15)
