"""Recurrent layers and cells: LSTM, GRU, plain; several layers, both directions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int, tensor, widths

LAYERS: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
CELLS: dict[str, Callable[..., nn.RNNCellBase]] = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
#: Share of layers that are given a single sequence, as streams and servers give them.
ALONE = 0.25
#: Share of layers as wide, and of batches as large, as people train: of shapes drawn evenly, few are.
BATCHED = 0.4
#: FLOPs one time step costs beyond its arithmetic: a handful of small kernels, each recorded.
PER_STEP = 6e6


class Unrolled(nn.Module):
    """A cell in a Python loop over the first dimension."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, sequence: Tensor) -> Tensor:
        state: Any = None
        for x in sequence:
            state = self.cell(x, state)
        result: Tensor = state[0] if isinstance(state, tuple) else state
        return result


def propose(random: Random, limit: Limit) -> Probe:
    """A block of recurrent layers of random shapes."""
    return block("recurrent", random, limit, _draw, most=5)


def _draw(random: Random) -> Branch:
    kind = random.choice(("lstm", "lstm", "gru", "gru", "rnn"))
    length, batch = log_int(random, 2, 128), 1 if random.random() < ALONE else log_int(random, 1, 512)
    width, (hidden,) = log_int(random, 1, 512), widths(random, 4, 512, 1)
    if random.random() < BATCHED:
        length, batch = log_int(random, 4, 64), log_int(random, 16, 512)
        width, (hidden,) = log_int(random, 1, 256), widths(random, 32, 512, 1)
    layers, both = random.choice((1, 1, 2, 3)), random.random() < 0.25
    if random.random() < 0.25:
        length = min(length, 16)
        flops = length * (2.0 * batch * GATES[kind] * hidden * (width + hidden) + PER_STEP)
        return Branch(
            f"{kind} cell {length}x{batch}x{width}->{hidden}",
            lambda: Unrolled(CELLS[kind](width, hidden)),
            lambda grad: tensor(length, batch, width, grad=grad),
            flops,
            40.0 * length * batch * hidden,
        )
    stacked = layers * (1 + both)
    inputs = width + hidden * (layers - 1) * (1 + both)
    flops = 2.0 * length * batch * GATES[kind] * hidden * (inputs + hidden * layers) * (1 + both)
    return Branch(
        f"{kind} {length}x{batch}x{width}->{hidden} layers {layers}{' both ways' * both}",
        lambda: LAYERS[kind](width, hidden, num_layers=layers, bidirectional=both),
        lambda grad: tensor(length, batch, width, grad=grad),
        flops + PER_STEP * length * stacked,
        40.0 * length * batch * hidden * stacked,
    )
