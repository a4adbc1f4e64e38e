"""Graph networks: messages along the edges of a random graph."""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.networks.layers import ACTIVATIONS, Layers
from placer.calibration.benchmarks.probe import log_int, tensor


class MessagePassing(nn.Module):
    """Adds a linear map of all nodes with an edge to a node, over a fixed random edge list."""

    def __init__(self, nodes: int, edges: int, width: int) -> None:
        super().__init__()
        self.register_buffer("edges", torch.randint(0, nodes, (2, edges)))
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        source, target = self.get_buffer("edges")
        messages = self.linear(x)[source]
        return x + torch.zeros_like(x).index_add(0, target, messages)


def graph(random: Random) -> tuple[Layers, Tensor]:
    """One to three rounds of messages, and a linear head on every node."""
    nodes, width = log_int(random, 16, 4096), log_int(random, 4, 128)
    edges = log_int(random, nodes, 8 * nodes)
    layers = Layers()
    for _ in range(random.choice((1, 2, 3))):
        layers.add(
            MessagePassing(nodes, edges, width),
            random.choice(ACTIVATIONS)(),
            flops=2.0 * nodes * width * width,
            elements=4.0 * edges * width,
        )
    layers.add(nn.Linear(width, 8))
    return layers, tensor(nodes, width)
