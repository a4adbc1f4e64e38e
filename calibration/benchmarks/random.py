"""Random numbers: dropout, and noise drawn for every element; drawn among the elementwise ops."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.1),
    "noise": lambda x: x + torch.randn_like(x),
    "uniform": lambda x: x + torch.rand_like(x),
}
