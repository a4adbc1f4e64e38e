"""Sorts and scans; drawn among the reductions."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

FUNCTIONS: dict[str, Callable[[Tensor], object]] = {
    "cumsum": lambda x: x.cumsum(-1),
    "topk": lambda x: x.topk(min(2, x.shape[-1]), -1).values,
    "sort": lambda x: x.sort(-1).values,
    "cumsum_outer": lambda x: x.cumsum(0),
    "argsort": lambda x: x.argsort(-1),
}
#: FLOPs per element: far more work than a reduction's.
FLOPS = {"sort": 200.0, "argsort": 200.0, "topk": 100.0, "cumsum": 20.0, "cumsum_outer": 20.0}
