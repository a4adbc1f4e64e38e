"""What is measured: one file per op family, and random networks.

To add a family, write a file with ``propose(random, limit) -> Probe`` and list it in ``PROPOSERS``. A family with a few
ops can be drawn by another's ``propose``, as sorts are by that of reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from placer.calibration.benchmarks import (
    attention,
    convolution,
    elementwise,
    encoder,
    indexing,
    linear_algebra,
    matmul,
    networks,
    normalization,
    optimizer,
    pooling,
    recurrent,
    reduction,
)
from placer.calibration.benchmarks.probe import Limit, Probe

#: Generators of probes by family, and the share of the budget each starts with. Another order would draw other probes.
PROPOSERS: Mapping[str, tuple[Callable[[Random, Limit], Probe], float]] = {
    "network": (networks.propose, 10.0),
    "matmul": (matmul.propose, 6.0),
    "elementwise": (elementwise.propose, 3.5),
    "convolution": (convolution.propose, 5.5),
    "normalization": (normalization.propose, 1.5),
    "reduction": (reduction.propose, 2.4),
    "pooling": (pooling.propose, 0.8),
    "indexing": (indexing.propose, 3.0),
    "attention": (attention.propose, 1.6),
    "encoder": (encoder.propose, 0.9),
    "linear_algebra": (linear_algebra.propose, 0.6),
    "recurrent": (recurrent.propose, 4.5),
    "optimizer": (optimizer.propose, 2.0),
}
