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
#: Optimizers with a kernel that does the whole update, as scripts for GPUs ask for, and the share of their probes on an
#: accelerator that take it.
WITH_FUSED, FUSED = ("adam", "adamw", "sgd"), 0.4
#: Most tensors of a probe. An accelerator updates all of them together, and networks there have hundreds.
MOST_TENSORS, MOST_ON_ACCELERATOR = 64, 512
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
    on_accelerator = limit.accelerator is not None
    fused = on_accelerator and name in WITH_FUSED and random.random() < FUSED
    tensors = MOST_ON_ACCELERATOR if on_accelerator else MOST_TENSORS
    most = max(int(limit.bytes / 100), 16)  # an Adam step and its gradients move about a hundred bytes per element
    if random.random() < LARGE:  # far more than any cache holds, as the weights of large models are
        numel, count = most, random.randint(2, 6)
    else:
        numel = log_int(random, 1, min(1 << 22, most))
        count = log_int(random, 1, max(1, min(tensors, most // numel)))
    return Probe(
        "optimizer",
        f"{name}{' fused' * fused} {count} x {numel}",
        lambda: Bag(count, numel),
        lambda: (torch.randn(numel),),
        "train",
        name,
        fused=fused,
    )
