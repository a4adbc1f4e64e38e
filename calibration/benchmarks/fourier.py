"""Fourier transforms; drawn among the factorisations of linear algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import torch
from torch import Tensor

from placer.calibration.benchmarks.probe import Apply, Branch, log_int, tensor

#: Functions of batches of signals.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "rfft": lambda x: torch.fft.rfft(x).abs(),
    "fft": lambda x: torch.fft.fft(x).real,
    "rfft2": lambda x: torch.fft.rfft2(x).abs(),
    "filter": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=x.shape[-1]),
}
#: FLOPs count this much more than those of a matrix product.
SLOW = 8.0


def draw(random: Random) -> Branch:
    """A transform of a random batch of signals."""
    name = random.choice(list(FUNCTIONS))
    batch, length = log_int(random, 1, 512), log_int(random, 4, 8192)
    return Branch(
        f"{name} {batch}x{length}", lambda: Apply(FUNCTIONS[name]), lambda grad: tensor(batch, length, grad=grad),
        SLOW * batch * length * math.log2(length), 32.0 * batch * length,
    )  # fmt: skip
