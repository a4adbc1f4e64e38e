"""Recommenders: embeddings dominate the parameters, small layers the calls."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import binary, mean_squared
from placer.calibration.suite.mlp import mlp

_TABLES = 8
_ROWS = 2000


class Dlrm(nn.Module):
    """Dense features through an MLP, 8 embedding bags, pairwise dot products, and an MLP on top: to (batch, 1)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.bottom = mlp((13, 64, width))
        self.tables = nn.ModuleList([nn.EmbeddingBag(_ROWS, width, mode="sum") for _ in range(_TABLES)])
        vectors = _TABLES + 1
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1))
        self.top = mlp((width + vectors * (vectors - 1) // 2, 64, 1))

    pairs: Tensor

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        # sparse: (batch, tables, ids per bag)
        vectors = torch.stack([bottom, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))
        out: Tensor = self.top(torch.cat([bottom, dots[:, self.pairs[0], self.pairs[1]]], dim=1))
        return out


class NeuralCollaborative(nn.Module):
    """User and item ids (batch,) each, through embeddings and an MLP, to a score."""

    def __init__(self, users: int = 6000, items: int = 4000, width: int = 32) -> None:
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = nn.Embedding(items, width)
        self.score = mlp((2 * width, 64, 32, 1))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        out: Tensor = self.score(torch.cat([self.users(user), self.items(item)], dim=1))
        return out


class EntityEmbeddings(nn.Module):
    """Categorical columns embedded and joined to numeric ones, as tabular learners do: to (batch, 1)."""

    def __init__(self, columns: int = 6) -> None:
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(50, 8) for _ in range(columns)])
        self.norm = nn.BatchNorm1d(10)
        self.body = mlp((8 * columns + 10, 200, 100, 1), norm=nn.BatchNorm1d, dropout=0.1)

    def forward(self, numeric: Tensor, categories: Tensor) -> Tensor:
        embedded = [embed(categories[:, i]) for i, embed in enumerate(self.embeds)]
        out: Tensor = self.body(torch.cat([*embedded, self.norm(numeric)], dim=1))
        return out


ENTRIES = (
    Entry(
        "dlrm_like", "recommender", Dlrm,
        lambda n: (torch.randn(n, 13), torch.randint(0, _ROWS, (n, _TABLES, 4))), (32, 1024), optimizer="sgd",
        loss=binary,
    ),
    Entry(
        "neural_collaborative_filtering", "recommender", NeuralCollaborative,
        lambda n: (torch.randint(0, 6000, (n,)), torch.randint(0, 4000, (n,))), (64, 1024), loss=mean_squared,
    ),
    Entry(
        "entity_embeddings", "recommender", EntityEmbeddings,
        lambda n: (torch.randn(n, 10), torch.randint(0, 50, (n, 6))), (64, 1024), loss=mean_squared,
    ),
)  # fmt: skip
