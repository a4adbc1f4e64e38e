"""Embedding, gather, scatter, index_select, index_put and index_add."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int


def _expanded(index: Tensor, table: Tensor) -> Tensor:
    return index[:, None].expand(-1, table.shape[1])


def _index_put(table: Tensor, index: Tensor) -> Tensor:
    out = torch.zeros_like(table)
    out[index] = table[index]
    return out


def _pooled_rows(table: Tensor, index: Tensor) -> Tensor:
    rows = table[index]
    return torch.zeros_like(table).index_add(0, index, rows)


def _bags(table: Tensor, index: Tensor) -> Tensor:
    """Sums of up to four rows each."""
    size = min(4, len(index))
    return F.embedding_bag(index[: len(index) // size * size].view(-1, size), table, mode="sum")


def _numbers(table: Tensor, index: Tensor) -> Tensor:
    """One number for each row, as degrees of nodes are added up."""
    return torch.zeros_like(table[:, 0]).scatter_add(0, index, table[index, 0])


def _largest(table: Tensor, index: Tensor) -> Tensor:
    """The largest of the rows that share a number, as attention over a graph takes it."""
    return torch.zeros_like(table).scatter_reduce(0, _expanded(index, table), table[index], "amax", include_self=False)


def _columns(table: Tensor, index: Tensor) -> Tensor:
    """Few columns of every row, picked one by one."""
    return table[:, index[:32] % table.shape[1]]


def _assigned(table: Tensor, index: Tensor) -> Tensor:
    """One number of each row, written to where a pair of indices says, as pooling sends gradients back."""
    count = min(len(index), table.shape[0])
    rows = torch.arange(count, device=index.device)
    out = torch.zeros_like(table)
    out[rows, index[:count] % table.shape[1]] = table[:count, 0]
    return out


def _masked(table: Tensor, index: Tensor) -> Tensor:
    """One number, written to where a mask of the table's shape says."""
    out = torch.zeros_like(table)
    out[table > 0] = 1.0
    return table * out


#: Functions of a table (rows x width) and a vector of row numbers.
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": lambda t, i: F.embedding(i, t), "embedding2": lambda t, i: F.embedding(i, t),
    "index_select": lambda t, i: t.index_select(0, i), "index": lambda t, i: t[i],
    "gather": lambda t, i: t.gather(0, _expanded(i, t)), "index_add": _pooled_rows,
    "scatter_add": lambda t, i: torch.zeros_like(t).scatter_add(0, _expanded(i, t), t[i]),
    "scatter": lambda t, i: torch.zeros_like(t).scatter(0, _expanded(i, t), t[i]), "index_put": _index_put,
    "scatter_add_": lambda t, i: torch.zeros_like(t).scatter_add_(0, _expanded(i, t), t[i]),
    "sum_rows": lambda t, i: F.embedding_bag(i[None], t, mode="sum"),
    "mean_rows": lambda t, i: F.embedding_bag(i, t, torch.arange(0, len(i), 4, device=i.device), mode="mean"),
    "bags": _bags, "bags2": _bags, "numbers": _numbers, "largest": _largest, "largest2": _largest, "columns": _columns,
    "assigned": _assigned, "assigned2": _assigned, "masked": _masked,
    "pairs": lambda t, i: t[i, i % t.shape[1]], "selected_columns": lambda t, i: t.index_select(1, i[:32] % t.shape[1]),
    "scatter_reduce": lambda t, i: torch.zeros_like(t).scatter_reduce(0, _expanded(i, t), t[i], "amax"),
}  # fmt: skip


class Lookup(nn.Module):
    """A trainable table and a function of it and row numbers."""

    def __init__(self, rows: int, width: int, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(rows, width))
        self.function = function

    def forward(self, index: Tensor) -> Tensor:
        return self.function(self.table, index)


def propose(random: Random, limit: Limit) -> Probe:
    """A block of lookups and scatters of random tables."""
    return block("indexing", random, limit, partial(_draw, limit=limit))


def _draw(random: Random, limit: Limit) -> Branch:
    name = random.choice(list(FUNCTIONS))
    width = log_int(random, 1, 1024)
    rows = log_int(random, 4, max(8, min(1 << 17, limit.most_elements // 4 // width)))
    indices = log_int(random, 1, max(2, min(1 << 16, limit.most_elements // 8 // width)))
    return Branch(
        f"{name} {rows}x{width} at {indices}",
        lambda: Lookup(rows, width, FUNCTIONS[name]),
        lambda grad: torch.randint(0, rows, (indices,)),
        0.0,
        16.0 * width * (rows + 2 * indices),
    )
