"""Networks of fully connected layers: deep and wide ones, one layer alone, a few small ones, and arithmetic by hand."""

from __future__ import annotations

import math
from random import Random

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.matmul import MatrixVector
from placer.calibration.benchmarks.networks.layers import ACTIVATIONS, ALONE, USUAL_ACTIVATIONS, Layers
from placer.calibration.benchmarks.networks.parts import InParts
from placer.calibration.benchmarks.probe import log_int, tensor, widths

#: Share of networks that work on one part of their batch after the other.
IN_PARTS = 0.1


class Pieces(nn.Module):
    """Arithmetic as people write it by hand: gates, means, norms and concatenations, many tiny ops."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.left(x))
        x = gate * torch.tanh(self.right(x)) + (1 - gate) * x
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5) * self.gain
        a, b = x.chunk(2, -1) if x.shape[-1] % 2 == 0 else (x, x)
        return torch.cat([a, b * 0.5], -1) if x.shape[-1] % 2 == 0 else a + b


def mlp(random: Random) -> tuple[Layers, Tensor]:
    """A multilayer perceptron, plain or normalized or with dropout."""
    batch = 1 if random.random() < ALONE else log_int(random, 1, 8192)
    width = log_int(random, 1, 512)
    x = tensor(batch, width)
    activation = random.choice(ACTIVATIONS)
    extra = random.random()
    layers = Layers()
    sizes = widths(random, 4, 2048, log_int(random, 1, 12))
    hidden = sizes[0]
    for following in sizes:
        layers.add(
            nn.Linear(width, hidden, bias=random.random() < 0.9),
            flops=2.0 * batch * width * hidden,
            elements=batch * hidden + width * hidden,
        )
        if extra < 0.2 and batch > 1:
            layers.add(nn.BatchNorm1d(hidden), elements=batch * hidden)
        elif extra < 0.35:
            layers.add(nn.LayerNorm(hidden), elements=batch * hidden)
        layers.add(activation(), elements=batch * hidden)
        if extra > 0.8:
            layers.add(nn.Dropout(0.1), elements=batch * hidden)
        width = hidden
        if random.random() < 0.3:
            hidden = following
    layers.add(nn.Linear(width, log_int(random, 1, 100)), flops=100.0 * batch * width)
    if batch >= 4 and random.random() < IN_PARTS:
        # A part of one row has no variance to normalize by.
        layers[:] = [InParts(nn.Sequential(*layers), log_int(random, 2, min(batch // 2, 32)))]
    return layers, x


def single(random: Random) -> tuple[Layers, Tensor]:
    """One layer and nothing else: what a step of a few microseconds is made of."""
    width, hidden = log_int(random, 1, 512), log_int(random, 1, 512)
    layer = random.choice((
        nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False), MatrixVector(hidden, width, torch.float32),
        nn.LayerNorm(width), nn.PReLU(),
    ))  # fmt: skip
    rows = () if isinstance(layer, MatrixVector) else (log_int(random, 1, 64),)
    layers = Layers()
    layers.add(layer, flops=2.0 * math.prod(rows) * width * hidden, elements=width * hidden)
    return layers, tensor(*rows, width)


def small(random: Random) -> tuple[Layers, Tensor]:
    """A few narrow layers on few rows, as policies and solvers call a thousand times: all of it stays in the caches."""
    batch, width = log_int(random, 1, 64), log_int(random, 1, 256)
    x = tensor(batch, width)
    activation = random.choice(USUAL_ACTIVATIONS)
    layers = Layers()
    for _ in range(random.randint(1, 4)):
        hidden = log_int(random, 2, 512)
        layers.add(nn.Linear(width, hidden), activation(), flops=2.0 * batch * width * hidden, elements=width * hidden)
        width = hidden
    layers.add(nn.Linear(width, log_int(random, 1, 16)))
    return layers, x


def pieces(random: Random) -> tuple[Layers, Tensor]:
    """Arithmetic written by hand, several times in a row."""
    width, batch = log_int(random, 2, 512), log_int(random, 1, 2048)
    layers = Layers()
    for _ in range(log_int(random, 1, 10)):
        layers.add(Pieces(width), flops=4.0 * batch * width * width, elements=12.0 * batch * width)
    return layers, tensor(batch, width)
