"""Optimizer steps: equal tensors, so that the step's time divides evenly among them."""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Limit, Probe, log_int

#: By how often training scripts use them.
NAMES = (
    "adam",
    "adam",
    "adam",
    "adamw",
    "adamw",
    "sgd",
    "sgd",
    "rmsprop",
    "adagrad",
    "adadelta",
    "nadam",
    "radam",
    "adamax",
)
#: Share of probes that exceed the limit on purpose.
LARGE = 0.08


class Bag(nn.Module):
    """``count`` parameters of ``numel`` elements each; every one gets a gradient at the cost of one add."""

    def __init__(self, count: int, numel: int) -> None:
        super().__init__()
        self.tensors = nn.ParameterList([nn.Parameter(torch.randn(numel)) for _ in range(count)])

    def forward(self, x: Tensor) -> Tensor:
        for p in self.tensors:
            x = x + p
        return x


def propose(random: Random, limit: Limit) -> Probe:
    """Some equal parameters and a random optimizer."""
    name = random.choice(NAMES)
    most = max(int(limit.bytes / 100), 16)  # an Adam step and its gradients move about a hundred bytes per element
    if random.random() < LARGE:  # far more than any cache holds, as the weights of large models are
        numel, count = most, random.randint(2, 6)
    else:
        numel = log_int(random, 1, min(1 << 22, most))
        count = log_int(random, 1, max(1, min(64, most // numel)))
    return Probe(
        "optimizer",
        f"{name} {count} x {numel}",
        lambda: Bag(count, numel),
        lambda: (torch.randn(numel),),
        "train",
        name,
    )
