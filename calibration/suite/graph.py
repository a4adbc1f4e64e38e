"""Graph networks on generated graphs: a batch is the number of nodes, or of small graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import QUICK, Entry, cross_entropy

_FEATURES = 32


def nodes(count: int) -> dict[str, Tensor]:
    """One random graph of ``count`` nodes and 5 edges per node, the same every time."""
    generator = torch.Generator().manual_seed(count)
    return {
        "x": torch.randn(count, _FEATURES, generator=generator),
        "edge_index": torch.randint(0, count, (2, 5 * count), generator=generator),
    }


def graphs(count: int) -> dict[str, Any]:
    """``count`` random graphs of 20 nodes and 60 edges each, laid side by side as torch_geometric batches them."""
    generator = torch.Generator().manual_seed(count)
    offsets = 20 * torch.arange(count).repeat_interleave(60)
    return {
        "x": torch.randn(20 * count, _FEATURES, generator=generator),
        "edge_index": torch.randint(0, 20, (2, 60 * count), generator=generator) + offsets,
        "batch": torch.arange(count).repeat_interleave(20),
        "size": count,
    }


def gnn(kind: str, **options: Any) -> nn.Module:
    """One of torch_geometric's ready-made networks: two layers over 32 features, 7 classes."""
    import torch_geometric.nn

    model = getattr(torch_geometric.nn, kind)(_FEATURES, 64, 2, 7, **options)
    return model


def gin_classifier(*, size_from_batch: bool = False) -> nn.Module:
    """Graph classification: three GIN layers and a sum over each graph.

    With ``size_from_batch`` the number of graphs is read from the batch vector, as most scripts do: one wait for the
    device, and a shape that depends on data.
    """
    from torch_geometric.nn import GIN, global_add_pool

    class Classifier(nn.Module):
        """GIN, pooled per graph."""

        def __init__(self) -> None:
            super().__init__()
            self.gin = GIN(_FEATURES, 64, 3, norm="batch_norm")
            self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2))

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, size: int) -> Tensor:
            h = self.gin(x, edge_index)
            return self.head(global_add_pool(h, batch, None if size_from_batch else size))

    return Classifier()


_PYG = ("torch_geometric",)
ENTRIES = (
    Entry(
        "gcn",
        "graph",
        lambda: gnn("GCN"),
        nodes,
        (100, 3000),
        loss=cross_entropy,
        needs=_PYG,
        suites=QUICK,
    ),
    Entry(
        "gat",
        "graph",
        lambda: gnn("GAT", heads=4, add_self_loops=False),
        nodes,
        (100, 3000),
        loss=cross_entropy,
        needs=_PYG,
    ),
    Entry(
        # Adding self-loops first removes those there are: how many edges remain depends on the graph.
        "gat_self_loops",
        "graph",
        lambda: gnn("GAT", heads=4),
        nodes,
        (100, 3000),
        loss=cross_entropy,
        needs=_PYG,
    ),
    Entry("graphsage", "graph", lambda: gnn("GraphSAGE"), nodes, (100, 3000), loss=cross_entropy, needs=_PYG),
    Entry("gin", "graph", gin_classifier, graphs, (4, 64), loss=cross_entropy, needs=_PYG),
    Entry(
        "gin_size_from_batch",
        "graph",
        lambda: gin_classifier(size_from_batch=True),
        graphs,
        (4, 64),
        loss=cross_entropy,
        needs=_PYG,
    ),
)
