"""The batch size from which the device pays, as predicted and as measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from simulated.device import DEVICE, SimulatedDevice
from simulated.slow_cpu import SlowCpu
from torch import nn

from placer.calibration.measuring.step import Step, make_optimizer
from placer.pricing.predict import predict
from placer.profile.profile import Profile
from placer.tracing import trace
from placer.workload import Workload, make_workload

Network = tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor], str]

NETWORKS: dict[str, Network] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)),
        lambda n: torch.randn(n, 64),
        "train",
    ),
    "normalized, inference": (
        lambda: nn.Sequential(
            nn.Linear(48, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 96), nn.LayerNorm(96), nn.Softmax(-1)
        ),
        lambda n: torch.randn(n, 48),
        "infer",
    ),
}
LARGEST = 4096


def workload(network: Network, batch: int, data: str = "host") -> Workload:
    build, example, mode = network
    optimizer = "adam" if mode == "train" else None
    return make_workload(build(), batch=(example(batch),), mode=mode, optimizer=optimizer, data=data)


def measured(network: Network, batch: int, device: str, data: str = "host") -> float:
    """Seconds of a step in a row of steps."""
    work = workload(network, batch, data)
    model = work.model.to(device)  # type: ignore[union-attr]
    step = Step(work, device, make_optimizer(model, "adam") if work.mode == "train" else None)
    step.prepare()
    marks = []
    for _ in range(4):
        step()
        marks.append(max(DEVICE.clock.now, DEVICE.queue.free_at) if device == "sim" else DEVICE.clock.now)
    return marks[-1] - marks[-2]


def crossover(seconds: Callable[[int], float], cpu: Callable[[int], float]) -> float:
    """The smallest batch, to about 5 %, from which ``seconds`` is less than ``cpu``."""
    low, high = 1.0, float(LARGEST)
    assert seconds(1) > cpu(1)
    assert seconds(LARGEST) < cpu(LARGEST)
    while high / low > 1.05:
        middle = (low * high) ** 0.5
        if round(middle) in (round(low), round(high)):
            break
        low, high = (low, middle) if seconds(round(middle)) < cpu(round(middle)) else (middle, high)
    return high


@pytest.mark.parametrize("name", NETWORKS)
def test_where_both_really_take_the_same_the_prediction_is_near(
    name: str, device: SimulatedDevice, with_its_host: Profile
) -> None:
    """Of times, not of batch sizes: where those of the CPU grow slowly, a few microseconds are many rows."""
    network = NETWORKS[name]

    @cache
    def cpu(batch: int) -> float:
        with SlowCpu(device.clock):
            return measured(network, batch, "cpu")

    def predicted(batch: int) -> float:
        return predict(trace(workload(network, batch)), with_its_host, devices=("sim",))["sim"].step_seconds

    level = round(crossover(lambda batch: measured(network, batch, "sim"), cpu))
    assert predicted(level) == pytest.approx(cpu(level), rel=0.15)


@pytest.mark.parametrize("data", ["host", "pinned", "device"])
@pytest.mark.parametrize("batch", [16, 2048])
def test_steps_are_predicted_wherever_batches_live(
    batch: int, data: str, device: SimulatedDevice, with_its_host: Profile
) -> None:
    """A step that waits for the host and one that waits for the device."""
    network = NETWORKS["mlp"]
    traced = trace(workload(network, batch, data))
    predicted = predict(traced, with_its_host, devices=("sim",), data=data)["sim"]
    assert predicted.step_seconds == pytest.approx(measured(network, batch, "sim", data), rel=0.15)
