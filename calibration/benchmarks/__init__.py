"""What is measured: one random generator per op family, and random networks.

To add a family, write a function ``draw(random, limit) -> Branch`` and give it a row in ``PROPOSERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from placer.calibration.benchmarks import functions, layers, networks
from placer.calibration.benchmarks.probe import Limit, Probe, block

#: Generators of probes by family, and the share of the budget each starts with. Another order would draw other probes.
PROPOSERS: Mapping[str, tuple[Callable[[Random, Limit], Probe], float]] = {
    "network": (networks.propose, 10.0),
    "matmul": (partial(block, family="matmul", draw=layers.draw_product), 6.0),
    "elementwise": (partial(block, family="elementwise", draw=functions.draw_elementwise, most=24), 3.5),
    "convolution": (partial(block, family="convolution", draw=layers.draw_convolution, most=12), 5.5),
    "normalization": (partial(block, family="normalization", draw=layers.draw_normalization), 1.5),
    "reduction": (partial(block, family="reduction", draw=functions.draw_reduction, most=10), 2.4),
    "pooling": (partial(block, family="pooling", draw=layers.draw_pooling), 0.8),
    "indexing": (partial(block, family="indexing", draw=functions.draw_lookup), 3.0),
    "attention": (partial(block, family="attention", draw=layers.draw_attention, most=6), 1.6),
    "encoder": (partial(block, family="encoder", draw=layers.draw_encoder, most=6, training=0.0), 0.9),
    "linear_algebra": (
        partial(block, family="linear_algebra", draw=functions.draw_linear_algebra, most=8, halves=False),
        0.6,
    ),
    "recurrent": (partial(block, family="recurrent", draw=layers.draw_recurrent, most=5), 4.5),
    "optimizer": (layers.propose_update, 2.0),
}
