"""Neural collaborative filtering (NeuMF) at the sizes of NVIDIA's benchmark on MovieLens 20M."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from placer.calibration.published.steps import PublishedStep

USERS, ITEMS = 138_493, 26_744
FACTORS, LAYERS, DROPOUT = 64, (256, 256, 128, 64), 0.5


class NeuMF(nn.Module):
    """A product of factors beside a multilayer perceptron (He et al. 2017), on embeddings of users and items."""

    def __init__(self) -> None:
        super().__init__()
        self.user_factors, self.item_factors = nn.Embedding(USERS, FACTORS), nn.Embedding(ITEMS, FACTORS)
        self.user_inputs, self.item_inputs = nn.Embedding(USERS, LAYERS[0] // 2), nn.Embedding(ITEMS, LAYERS[0] // 2)
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(LAYERS))
        self.last = nn.Linear(LAYERS[-1] + FACTORS, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Logits (pairs, 1)."""
        factors = self.user_factors(user) * self.item_factors(item)
        x = torch.cat((self.user_inputs(user), self.item_inputs(item)), dim=1)
        for layer in self.layers:
            x = torch.relu(nn.functional.dropout(layer(x), DROPOUT, self.training))
        logits: Tensor = self.last(torch.cat((factors, x), dim=1))
        return logits


def model(step: PublishedStep) -> tuple[nn.Module, tuple[tuple[Tensor, ...], dict[str, Tensor]]]:
    """The network, and as many pairs of users and items as ``step`` has samples."""
    pairs = tuple(torch.zeros(step.batch, dtype=torch.int64) for _ in range(2))
    return NeuMF(), (pairs, {})
