"""Twelve small networks that are the same in every calibration: their steps tell the pace of an accelerator's host.

A network's host takes a quarter more or less than its costs say, and which, networks drawn at random leave to chance.
Between them these have all that costs a host time (``pricing.host_costs``), and updates of few and of many tensors.
None is of the validation suite.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.kinds import Iterated, LastOutput, MessagePassing, SelfAttention, Tokens
from placer.calibration.benchmarks.layers import Bag, Residual
from placer.calibration.benchmarks.probe import Probe, tensor

#: The family that their steps are filed under, and what ends the name of one whose update is fused.
PACE, FUSED = "pace", ", fused"


class Mixed(nn.Module):
    """A module whose forward runs in bfloat16 where torch's autocast says so."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return self.module(x)


def _perceptron(depth: int, width: int) -> nn.Module:
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(32, width), nn.ReLU(), *hidden, nn.Linear(width, 4))


def _convolutional(normalized: bool) -> nn.Module:
    layers: list[nn.Module] = []
    for channels, width in ((3, 16), (16, 32), (32, 32)):
        norm = (nn.BatchNorm2d(width),) if normalized else ()
        layers += [nn.Conv2d(channels, width, 3, padding=1), *norm, nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def _transformer() -> nn.Module:
    blocks: list[nn.Module] = [Tokens(200, 16, 32)]
    for _ in range(2):
        feed = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
        mixing = nn.Sequential(nn.LayerNorm(32), SelfAttention(32, 4, fused_projection=True))
        blocks += [Residual(mixing), Residual(feed)]
    return nn.Sequential(*blocks, nn.Linear(32, 8))


def _solver() -> nn.Module:
    return Iterated(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4)), steps=4, stages=4, stacked=False)


def _sequence(layer: nn.RNNBase) -> nn.Module:
    return nn.Sequential(LastOutput(layer), nn.Linear(layer.hidden_size, 4))


#: Name, network, input and optimizer of each.
_NETWORKS: tuple[tuple[str, Callable[[], nn.Module], Callable[[], Tensor], str], ...] = (
    ("perceptron", lambda: _perceptron(2, 64), lambda: tensor(64, 32), "adam"),
    ("convolutional", lambda: _convolutional(normalized=False), lambda: tensor(8, 3, 16, 16), "sgd"),
    ("transformer", _transformer, lambda: torch.randint(0, 200, (4, 16)), "adamw"),
    ("solver", _solver, lambda: tensor(16, 4), "adam"),
    ("gru", lambda: _sequence(nn.GRU(8, 32, batch_first=True)), lambda: tensor(16, 12, 8), "adam"),
    ("normalized", lambda: _convolutional(normalized=True), lambda: tensor(8, 3, 16, 16), "adam"),
    ("graph", lambda: nn.Sequential(MessagePassing(100, 400, 16), nn.ReLU(), MessagePassing(100, 400, 16)),
     lambda: tensor(100, 16), "adam"),
    ("embedding", lambda: nn.Sequential(nn.Embedding(500, 16), nn.Flatten(), nn.Linear(128, 32), nn.ReLU()),
     lambda: torch.randint(0, 500, (64, 8)), "sgd"),
    ("mixed precision", lambda: Mixed(_perceptron(3, 128)), lambda: tensor(128, 32), "adam"),
    ("lstm", lambda: _sequence(nn.LSTM(8, 32, num_layers=2, batch_first=True)), lambda: tensor(16, 12, 8), "sgd"),
    ("deep perceptron", lambda: _perceptron(12, 32), lambda: tensor(16, 32), "adam"),
    ("deep perceptron" + FUSED, lambda: _perceptron(12, 32), lambda: tensor(16, 32), "adam"),
)  # fmt: skip
#: Updates beside them: the optimizer, its equal tensors, and whether it updates them in one kernel.
_UPDATES = (("adam", 1, False), ("adam", 32, False), ("sgd", 32, False), ("adam", 32, True))


def probes() -> list[Probe]:
    """The networks, trained and in inference, and the updates."""
    trained, asked = [], []
    for name, build, example, optimizer in _NETWORKS:
        fused = name.endswith(FUSED)
        inputs = partial(_one, example)
        trained.append(Probe(PACE, f"{name}, trained", build, inputs, "train", optimizer, fused=fused))
        if not fused:
            asked.append(Probe(PACE, name, build, inputs, "infer"))
    updated = [
        Probe(
            PACE, f"{optimizer}{FUSED * fused}, {count} tensors", partial(Bag, count, 256), partial(_one, _vector),
            "train", optimizer, fused=fused,
        )
        for optimizer, count, fused in _UPDATES
    ]  # fmt: skip
    turns = (probe for turn in zip_longest(trained, asked) for probe in turn if probe is not None)
    return [*turns, *updated]


def _one(example: Callable[[], Tensor]) -> tuple[Tensor]:
    return (example(),)


def _vector() -> Tensor:
    return tensor(256)
