"""A model that really runs on two devices: its step as predicted and as measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from simulated.costs import tensors_in
from simulated.device import DEVICE, Device
from simulated.slow_cpu import SlowCpu
from torch import Tensor, nn

from placer.calibration.measuring.step import make_optimizer
from placer.pricing import predict_split
from placer.profile.profile import Profile
from placer.tracing import trace
from placer.workload import Workload, check_on_cpu, cpu_part, make_workload


class Towers(nn.Module):
    """A tower on each of two inputs, and a head on both."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        self.right = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64))
        self.head = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        joined: Tensor = self.head(torch.cat([self.left(left), self.right(right)], 1))
        return joined


class _HostOps(SlowCpu):
    """Ops on the device cost the host nothing here: what they take, the device itself says."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        found = tensors_in((args, tuple((kwargs or {}).values())))
        if any(tensor.device.type != "cpu" for tensor in found):
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


def workload(mode: str, batch: int) -> Workload:
    example = (torch.randn(batch, 64), torch.randn(batch, 32))
    work = make_workload(Towers(), example=example, mode=mode, optimizer="sgd" if mode == "train" else None)
    return dataclasses.replace(work, on_cpu=check_on_cpu("left", work))


def measured(work: Workload, device: str) -> float:
    """Seconds of a step of the model, divided as a user divides it."""
    model = work.target
    assert isinstance(model, Towers)
    model.to(device)
    model.left.to("cpu")
    model.left.register_forward_hook(lambda module, inputs, output: output.to(device))
    optimizer = make_optimizer(model, "sgd") if work.mode == "train" else None
    left, right = work.args
    marks = []
    with _HostOps(DEVICE.clock, dispatch=2e-6, flops=1e10, bytes_per_second=4e9):
        for _ in range(4):
            if optimizer is None:
                with torch.no_grad():
                    model(left, right.to(device)).to("cpu")
            else:
                optimizer.zero_grad()
                model(left, right.to(device)).sum().backward()
                optimizer.step()
            marks.append(max(DEVICE.clock.now, DEVICE.queue.free_at))
    return marks[-1] - marks[-2]


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("batch", [64, 1024])
def test_split_steps_are_predicted(mode: str, batch: int, device: Device, with_cpu: Profile) -> None:
    work = workload(mode, batch)
    traced = trace(work)
    predicted = predict_split(traced, cpu_part(work), "sim", with_cpu, with_cpu)
    real = measured(work, "sim")
    assert predicted.step_seconds == pytest.approx(real, rel=0.15)
