"""A small one-dimensional convolutional regressor: gains little on an accelerator until batches are large.

Stands alone: ``placer explain calibration/suite/conv1d.py:Conv1dRegressor --batch 32,84`` loads it as a file.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Conv1dRegressor(nn.Module):
    """(batch, 84) features to (batch, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(84, 16)
        self.conv1 = nn.Conv1d(1, 8, 3, padding=1)
        self.pool = nn.MaxPool1d(3)
        self.conv2 = nn.Conv1d(8, 16, 3, padding=1)
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.mish(self.project(x)).view(-1, 1, 16)
        x = self.pool(F.mish(self.conv1(x)))
        x = F.mish(self.conv2(x)).amax(dim=-1)
        return self.head(x)
