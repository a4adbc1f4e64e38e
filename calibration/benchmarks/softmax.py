"""Softmax and its logarithm, of the innermost and of the outer dimension; drawn among the reductions."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

FUNCTIONS: dict[str, Callable[[Tensor], object]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmax_outer": lambda x: x.softmax(0),
    "softmax_mask": lambda x: x.masked_fill(x > 2, -1e9).softmax(-1),
}
