"""Layers around other layers that several kinds of random networks have."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """``x + body(x)``."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.body(x)
        return result


class InParts(nn.Module):
    """``body`` on one part of the batch after the other, put together again: ghost batches, chunks to save memory.

    The same few ops run many times in a row, on little each time, in a step that may be large.
    """

    def __init__(self, body: nn.Module, parts: int) -> None:
        super().__init__()
        self.body, self.parts = body, parts

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.body(part) for part in x.tensor_split(self.parts)])
