"""What several accounts have in common: a step whose output stays where it is, and a loader that fetches row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts.account import BOTH, Part, Side


class Stays(nn.Module):
    """``inner`` whose output is not brought back to the host: the account times the computation alone."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Tensor) -> None:
        self.inner(*args)


class Waited(nn.Module):
    """``inner``, and a wait for the device at its end, as a benchmark of single calls has it: one value is read."""

    def __init__(self, inner: Callable[..., Tensor]) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Tensor) -> Tensor:
        return self.inner(*args).flatten()[:1]


class RowLoader(nn.Module):
    """What ``DataLoader`` does with a ``TensorDataset`` and no workers: fetches every row, then stacks a batch of them.

    Takes a batch of each tensor and gives it back. Python's own time between these operators is not in it.
    """

    def forward(self, *data: Tensor) -> list[Tensor]:
        rows = [tuple(tensor[i] for tensor in data) for i in range(len(data[0]))]
        return [torch.stack(column) for column in zip(*rows, strict=True)]


#: Rows of the loader that are priced at once: it takes as long for each row of a larger batch.
_MOST_ROWS = 256


def row_loader(rows: int, batch: int, widths: Sequence[int], counted: tuple[Side, ...] = BOTH) -> Part:
    """The loader's part of an epoch over ``rows`` rows: float rows of these ``widths``, 0 for a label."""
    fetched = min(batch, _MOST_ROWS)

    def example() -> tuple[Tensor, ...]:
        labels = torch.zeros(fetched, dtype=torch.int64)
        return tuple(torch.zeros(fetched, width) if width else labels for width in widths)

    return Part(RowLoader, example, "infer", count=rows / fetched, on_host=True, counted=counted)


def read_loss(loss: Tensor) -> Tensor:
    """A loss that the script reads in every step: the host waits for the device."""
    loss.item()
    return loss
