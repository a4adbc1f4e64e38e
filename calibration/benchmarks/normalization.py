"""Normalization layers, in training and in evaluation mode."""

from __future__ import annotations

import math
from functools import partial
from random import Random

from torch import nn

from placer.calibration.benchmarks.networks.parts import InParts
from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int, tensor

#: Share of layers that take one part of the batch after the other.
IN_PARTS = 0.2


def propose(random: Random, limit: Limit) -> Probe:
    """A block of normalization layers on random shapes."""
    return block("normalization", random, limit, partial(_draw, limit=limit))


def _draw(random: Random, limit: Limit) -> Branch:
    kind = random.choice(("batch1d", "batch2d", "batch2d", "layer", "layer", "group", "rms"))
    numel, channels = log_int(random, 64, limit.most_elements), log_int(random, 4, 2048)
    if kind in ("batch2d", "group"):
        side = log_int(random, 2, 64)
        shape: tuple[int, ...] = (max(numel // (channels * side * side), 2), channels, side, side)
    else:
        shape = (max(numel // channels, 2), channels)
    groups = 4 if channels % 4 == 0 else 1
    # A part of one row has no variance; few rows make few parts.
    parts = log_int(random, 2, 64) if random.random() < IN_PARTS else 1
    parts = min(parts, shape[0] // 2)

    def layer() -> nn.Module:
        if kind == "batch1d":
            return nn.BatchNorm1d(channels)
        if kind == "batch2d":
            return nn.BatchNorm2d(channels)
        if kind == "group":
            return nn.GroupNorm(groups, channels)
        return nn.RMSNorm(channels) if kind == "rms" else nn.LayerNorm(channels)

    def build() -> nn.Module:
        return InParts(layer(), parts) if parts > 1 else layer()

    size = math.prod(shape)
    name = f"{kind} {shape}" + (f" in {parts} parts" if parts > 1 else "")
    return Branch(name, build, lambda grad: tensor(*shape, grad=grad), 8.0 * size, 12.0 * size)
