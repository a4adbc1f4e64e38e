"""Twelve small networks that are the same in every calibration: their steps tell the pace of an accelerator's host.

A network's host takes a quarter more or less than its costs say, and which, networks drawn at random leave to chance.
Between them these have all that costs a host time (``pricing.host_costs``), and updates of few and of many tensors.
None is of the validation suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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


def _sequence(kind: type[nn.GRU] | type[nn.LSTM], layers: int) -> nn.Module:
    return nn.Sequential(LastOutput(kind(8, 32, num_layers=layers, batch_first=True)), nn.Linear(32, 4))


def _graph() -> nn.Module:
    return nn.Sequential(MessagePassing(100, 400, 16), nn.ReLU(), MessagePassing(100, 400, 16))


def _embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(500, 16), nn.Flatten(), nn.Linear(128, 32), nn.ReLU())


def _mixed() -> nn.Module:
    return Mixed(_perceptron(3, 128))


#: Networks: how one and its input are made, and what updates it.
NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], str]] = {
    "perceptron": (partial(_perceptron, 2, 64), partial(tensor, 64, 32), "adam"),
    "convolutional": (partial(_convolutional, normalized=False), partial(tensor, 8, 3, 16, 16), "sgd"),
    "transformer": (_transformer, partial(torch.randint, 0, 200, (4, 16)), "adamw"),
    "solver": (_solver, partial(tensor, 16, 4), "adam"),
    "gru": (partial(_sequence, nn.GRU, 1), partial(tensor, 16, 12, 8), "adam"),
    "normalized": (partial(_convolutional, normalized=True), partial(tensor, 8, 3, 16, 16), "adam"),
    "graph": (_graph, partial(tensor, 100, 16), "adam"),
    "embedding": (_embedding, partial(torch.randint, 0, 500, (64, 8)), "sgd"),
    "mixed precision": (_mixed, partial(tensor, 128, 32), "adam"),
    "lstm": (partial(_sequence, nn.LSTM, 2), partial(tensor, 16, 12, 8), "sgd"),
    "deep perceptron": (partial(_perceptron, 12, 32), partial(tensor, 16, 32), "adam"),
    "deep perceptron" + FUSED: (partial(_perceptron, 12, 32), partial(tensor, 16, 32), "adam"),
}
#: Updates beside them: the optimizer, its equal tensors, and whether it updates them in one kernel.
_UPDATES = (("adam", 1, False), ("adam", 32, False), ("sgd", 32, False), ("adam", 32, True))


def probes() -> list[Probe]:
    """The networks, trained and in inference, and the updates."""
    found = []
    for name, (build, example, optimizer) in NETWORKS.items():
        inputs, fused = partial(_one, example), name.endswith(FUSED)
        found.append(Probe(PACE, f"{name}, trained", build, inputs, "train", optimizer, fused=fused))
        if not fused:
            found.append(Probe(PACE, name, build, inputs, "infer"))
    vector = partial(_one, partial(tensor, 256))
    for optimizer, count, fused in _UPDATES:
        name = f"{optimizer}{FUSED * fused}, {count} tensors"
        found.append(Probe(PACE, name, partial(Bag, count, 256), vector, "train", optimizer, fused=fused))
    return found


def _one(example: Callable[[], Tensor]) -> tuple[Tensor]:
    return (example(),)
