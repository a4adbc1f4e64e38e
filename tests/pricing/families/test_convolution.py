"""Convolutions and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from described import HERE, feature, traced
from torch import nn

from placer.pricing.describe import amounts, describe
from placer.pricing.families.convolution import FORWARD
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
    (first,) = [
        describe(c, HERE)
        for c in trace(make_workload(nn.Conv2d(3, 16, 1), (1, 3, 4, 4), mode="train")).calls
        if c.op == "aten::convolution_backward"
    ]
    assert amounts(first)["filling_flops"] == 0  # an image of few channels is read as it lies


def test_channels_of_groups_are_not_filled_up() -> None:
    found = traced(nn.Conv2d(6, 6, 3, groups=2), "aten::convolution", (2, 6, 5, 5), mode="infer")
    assert amounts(found)["filling_flops"] == 0
    assert amounts(found)["unfolded_bytes"] == 4 * 2 * 6 * 9 * 9
    names = ("batch", "in_channels", "out_channels", "groups", "kernel", "positions", "input_positions", "weights")
    assert [feature(found, name) for name in names] == [2, 3, 3, 2, 9, 9, 25, 6 * 3 * 9]


@pytest.mark.parametrize(
    ("layer", "shape", "flags"),
    [
        (nn.Conv1d(2, 4, 3), (1, 2, 8), {"one_d"}),
        (nn.Conv2d(2, 4, 3), (1, 2, 8, 8), set()),
        (nn.Conv3d(2, 4, 3), (1, 2, 8, 8, 8), {"three_d"}),
        (nn.Conv2d(2, 4, 3, dilation=(1, 2)), (1, 2, 8, 8), {"dilated"}),
        (nn.Conv2d(2, 4, 3, stride=2, padding=1), (1, 2, 8, 8), set()),
        (nn.ConvTranspose2d(2, 4, 3), (1, 2, 8, 8), {"transposed"}),
    ],
)
def test_what_kind_of_convolution_it_is(layer: nn.Module, shape: tuple[int, ...], flags: set[str]) -> None:
    names = ("one_d", "three_d", "transposed", "strided", "dilated")
    for op in ("aten::convolution", "aten::convolution_backward"):
        found = traced(layer, op, shape)
        assert {name for name in names if feature(found, name)} == flags


def test_an_image_whose_channels_lie_side_by_side_is_strided() -> None:
    image = torch.zeros(1, 2, 8, 8).to(memory_format=torch.channels_last)
    assert feature(traced(nn.Conv2d(2, 4, 3), "aten::convolution", example=(image,), mode="infer"), "strided") == 1


@pytest.mark.parametrize(
    ("layer", "variant"),
    [
        (nn.Conv2d(1, 8, 3), ""), (nn.Conv2d(8, 8, 3, groups=4), ""), (nn.Conv2d(8, 16, 3, groups=8), "depthwise"),
        (nn.Conv2d(8, 8, 3, groups=8, dilation=2), "dilated_depthwise"),
        (nn.Conv2d(8, 8, 1, groups=8, dilation=2), "depthwise"),
    ],
)  # fmt: skip
def test_only_groups_of_one_channel_are_depthwise(layer: nn.Conv2d, variant: str) -> None:
    found = traced(layer, "aten::convolution", (1, layer.in_channels, 8, 8), mode="infer")
    assert FORWARD.variant(found) == variant
