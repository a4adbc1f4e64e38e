"""Convolutions and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from described import HERE, feature, traced
from torch import nn

from placer.pricing.describe import amounts, describe
from placer.tracing import trace
from placer.workload import make_workload

CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], float]] = {
    # 2 x batch x output positions x output channels x (input channels / groups) x kernel
    "1d": (lambda: nn.Conv1d(3, 8, 5), (2, 3, 20), 2 * 2 * 16 * 8 * 3 * 5),
    "2d": (lambda: nn.Conv2d(3, 8, 3, padding=1), (2, 3, 6, 7), 2 * 2 * 42 * 8 * 3 * 9),
    "2d, strided": (lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1), (1, 4, 8, 8), 2 * 16 * 8 * 4 * 9),
    "3d": (lambda: nn.Conv3d(2, 4, 3, padding=1), (1, 2, 4, 4, 4), 2 * 64 * 4 * 2 * 27),
    "grouped": (lambda: nn.Conv2d(8, 16, 3, groups=4), (2, 8, 10, 10), 2 * 2 * 64 * 16 * 2 * 9),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), (1, 8, 5, 5), 2 * 25 * 8 * 1 * 9),
    # Here every *input* position meets every kernel element.
    "transposed": (lambda: nn.ConvTranspose2d(8, 6, 3, stride=2), (2, 8, 5, 5), 2 * 2 * 25 * 8 * 6 * 9),
    "transposed, grouped": (lambda: nn.ConvTranspose1d(8, 6, 4, groups=2), (2, 8, 10), 2 * 2 * 10 * 8 * 3 * 4),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    build, shape, flops = CONVOLUTIONS[name]
    model = build()
    found = traced(model, "aten::convolution", shape, mode="infer")
    assert found.flops == flops
    out = model(torch.zeros(shape))
    parameters = sum(p.numel() for p in model.parameters())
    assert found.bytes == 4 * (math.prod(shape) + out.numel() + parameters)
    assert feature(found, "transposed") == ("transposed" in name)
    assert amounts(found, 1)["activations"] == math.prod(shape) + out.numel()
    # Only the weight's gradient is asked for: as much arithmetic as forward.
    assert traced(model, "aten::convolution_backward", shape).flops == flops


def test_a_convolution_in_the_middle_costs_two_gradients() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 8, 3))
    step = trace(make_workload(model, (2, 3, 6, 6), mode="train"))
    forward = [describe(c, HERE).flops for c in step.calls if c.op == "aten::convolution"]
    backward = [describe(c, HERE) for c in step.calls if c.op == "aten::convolution_backward"]
    assert [w.flops for w in backward] == [2 * forward[1], forward[0]]
    assert [feature(w, "to_input") for w in backward] == [1, 0]


def test_filled_up_channels_and_unfolded_patches() -> None:
    found = traced(nn.Conv2d(3, 20, 3, padding=1), "aten::convolution", (1, 3, 4, 4), mode="infer")
    extra = amounts(found)
    # 20 -> 32 channels; the three of the image are read as they lie
    assert extra["filling_flops"] == pytest.approx(2 * 16 * 3 * (32 - 20) * 9)
    assert extra["unfolded_bytes"] == 4 * 16 * 3 * 9
    assert amounts(traced(nn.Conv2d(32, 48, 3), "aten::convolution", (1, 32, 4, 4)))["filling_flops"] == 0
    wide = traced(nn.Conv2d(20, 16, 1), "aten::convolution", (1, 20, 4, 4), mode="infer")
    assert amounts(wide)["filling_flops"] == pytest.approx(2 * 16 * 16 * (32 - 20))


def test_the_gradient_of_an_image_of_few_channels_is_filled_up() -> None:
    step = trace(make_workload(nn.Sequential(nn.Conv2d(16, 3, 1), nn.Conv2d(3, 16, 1)), (1, 16, 4, 4), mode="train"))
    to_both, to_weight = [describe(c, HERE) for c in step.calls if c.op == "aten::convolution_backward"]
    one = 2 * 16 * 16 * 3  # FLOPs of each gradient
    assert amounts(to_both)["filling_flops"] == pytest.approx(2 * one * (16 / 3 - 1))
    assert amounts(to_weight)["filling_flops"] == pytest.approx(one * (16 / 3 - 1))
