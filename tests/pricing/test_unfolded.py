"""Convolutions on CPUs for which torch has no oneDNN, and the memory of large results."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from placer.pricing import cpu_profile, predict
from placer.profile import find_cpu
from placer.tracing import trace
from placer.workload import make_workload


def seconds(model: nn.Module, batch: torch.Tensor, cpu: str, threads: int = 4, mode: str = "infer") -> float:
    """Seconds of a step on a CPU of the catalog."""
    step = trace(make_workload(model.eval(), batch=batch, mode=mode, data="device"))
    return predict(step, cpu_profile(find_cpu(cpu), threads), devices=("cpu",), threads=threads)["cpu"].step_seconds


def images(count: int) -> torch.Tensor:
    return torch.zeros(count, 64, 56, 56)


def test_sixteen_images_go_to_a_slow_library_on_an_apple() -> None:
    convolution = nn.Conv2d(64, 64, 3, padding=1)
    fifteen, sixteen = (seconds(convolution, images(count), "Apple M4") for count in (15, 16))
    assert sixteen > 1.5 * fifteen
    x86 = [seconds(convolution, images(count), "i9-10940X") for count in (15, 16)]
    assert x86[1] < 1.3 * x86[0]


def test_a_published_time_of_an_unfolded_network() -> None:
    """A large product of 2,048 numbers a side takes 11.5 ms on an M4."""
    assert 7.0e-3 < seconds(nn.Linear(2048, 2048, bias=False), torch.zeros(2048, 2048), "Apple M4") < 20e-3


def test_memory_of_large_results_is_not_shared_by_cores() -> None:
    """From 32 MB on glibc gives results back to the system, which hands out pages at one rate to all cores."""
    few, many = (seconds(nn.ReLU(), torch.zeros(2**24), "i9-10940X", threads) for threads in (4, 14))
    assert few == pytest.approx(many, rel=0.1)
    assert many > 64e6 / 14e9
    below = seconds(nn.ReLU(), torch.zeros(2**22), "i9-10940X", 14)
    assert below < many / 8.0
