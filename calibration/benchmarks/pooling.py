"""Pooling and interpolation."""

from __future__ import annotations

import math
from functools import partial
from random import Random

from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int, tensor

#: Share of the maxima that are taken of what has passed a rectifier, as in most networks: a maximum is found by
#: comparing one by one, and where many are zero the processor guesses right more often, and takes up to a third less.
RECTIFIED = 0.7


def propose(random: Random, limit: Limit) -> Probe:
    """A block of pooling and interpolation layers on random shapes."""
    return block("pooling", random, limit, partial(_draw, limit=limit))


def _draw(random: Random, limit: Limit) -> Branch:
    kind = random.choice(("max1d", "max2d", "max2d", "avg2d", "adaptive", "upsample", "avg1d"))
    window = random.choice((2, 2, 3, 4))
    dims = 1 if kind.endswith("1d") else 2
    numel, channels = log_int(random, 64, limit.most_elements // 8), log_int(random, 1, 512)
    side = log_int(random, max(window, 4), 4096 if dims == 1 else 112)
    shape = (max(numel // (channels * side**dims), 1), channels, *(side,) * dims)
    result, mode = random.choice((1, 1, 2, 4)), random.choice(("nearest", "bilinear"))
    overlapping = kind == "max2d" and random.random() < 0.3
    rectified = kind.startswith("max") and random.random() < RECTIFIED

    def build() -> nn.Module:
        if kind == "max2d":
            return nn.MaxPool2d(3, stride=2, padding=1) if overlapping else nn.MaxPool2d(window)
        layers: dict[str, nn.Module] = {
            "max1d": nn.MaxPool1d(window), "avg1d": nn.AvgPool1d(window), "avg2d": nn.AvgPool2d(window),
            "adaptive": nn.AdaptiveAvgPool2d(result), "upsample": nn.Upsample(scale_factor=2, mode=mode),
        }  # fmt: skip
        return layers[kind]

    def example(grad: bool) -> Tensor:
        values = tensor(*shape)
        return (values.relu_() if rectified else values).requires_grad_(grad)

    size = math.prod(shape) * (4 if kind == "upsample" else 1)
    name = f"{kind} {shape} window {window}" + " rectified" * rectified
    return Branch(name, build, example, 40.0 * size, 12.0 * size)
