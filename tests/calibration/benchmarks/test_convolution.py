"""Which convolutions are drawn."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from placer.calibration.benchmarks.layers import draw_convolution
from placer.calibration.benchmarks.probe import Limit


def test_convolutions_are_drawn_as_networks_of_images_have_them() -> None:
    random = Random(0)
    with torch.device("meta"):
        layers: list[Any] = [draw_convolution(random, Limit(1e9, 1e8)).build() for _ in range(500)]
    assert {layer.kernel_size[0] for layer in layers} == {1, 2, 3, 4, 5, 7, 8, 16}
    patches = [layer for layer in layers if layer.stride == layer.kernel_size != (1,) * len(layer.stride)]
    assert {layer.transposed for layer in patches if set(layer.padding) == {0}} == {False, True}
    # Deep in a network weights are most of what is read: a million of them is what 3x3 kernels of 340 channels have.
    assert sum(layer.weight.numel() > 1e6 for layer in layers) > 25
