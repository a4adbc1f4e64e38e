"""Recurrent networks: fused layers, and cells called in a Python loop."""

from __future__ import annotations

from random import Random

from torch import Tensor, nn

from placer.calibration.benchmarks.networks.layers import ALONE, Layers
from placer.calibration.benchmarks.probe import log_int, tensor, widths
from placer.calibration.benchmarks.recurrent import BATCHED, CELLS, LAYERS, PER_STEP, Unrolled

#: Share of networks whose cell is called in a Python loop.
LOOPED = 0.3


class LastOutput(nn.Module):
    """A recurrent layer whose last output goes on."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)[0][:, -1]
        return result


def recurrent(random: Random) -> tuple[Layers, Tensor]:
    """A recurrent layer, or a cell in a loop, and a linear head on the last output."""
    name = random.choice(tuple(CELLS))
    width, (hidden,) = log_int(random, 1, 128), widths(random, 8, 256, 1)
    both = random.random() < 0.2
    depth = random.choice((1, 1, 2))
    batch = 1 if random.random() < ALONE else log_int(random, 1, 64)
    if random.random() < BATCHED:
        batch, (hidden,) = log_int(random, 16, 256), widths(random, 32, 256, 1)
    x = tensor(batch, log_int(random, 4, 64), width)
    layers = Layers()
    rows = float(x.shape[0] * x.shape[1])
    if random.random() < LOOPED:
        # Calls of a cell cost time of their own, which counts as if it were arithmetic.
        layers.add(
            Unrolled(CELLS[name](width, hidden)),
            nn.Linear(hidden, log_int(random, 1, 32)),
            flops=8.0 * rows * hidden * (width + hidden) + PER_STEP * x.shape[1],
            elements=10 * rows * hidden,
        )
        return layers, x.transpose(0, 1).contiguous()
    layer = LAYERS[name](width, hidden, num_layers=depth, bidirectional=both, batch_first=True)
    layers.add(
        LastOutput(layer),
        flops=8.0 * rows * hidden * (width + hidden * (2 * depth - 1)) * (1 + both),
        elements=10 * rows * hidden,
    )
    layers.add(nn.Linear(hidden * (1 + both), log_int(random, 1, 32)))
    return layers, x
