"""A typical op of each kind, by the table of ops: what records of single ops time. Each takes milliseconds at the most.

The table says it as an expression of operands ``x`` and ``y`` and their shapes: ``torch.hypot(x, y) of 512x512,
512x512``. Operands are normal random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from placer.pricing.ops import table

Shape = tuple[int, ...]
#: Smallest dimension that grows with the size of an op.
LEAST_SCALED = 16


class TypicalCall(NamedTuple):
    """A function, and the shapes of its operands."""

    function: Callable[..., Any]
    shapes: tuple[Shape, ...]


def typical_ops() -> Mapping[str, TypicalCall]:
    """A call for each kind of the table."""
    return {op.kind: parsed(op.typical) for op in table() if op.typical}


def parsed(typical: str) -> TypicalCall:
    """The call that a cell of the table says. Raises ValueError or SyntaxError of one that it does not understand."""
    expression, of, text = typical.rpartition(" of ")
    if not of:
        raise ValueError(f"{typical!r} is no call: write it as 'torch.sinh(x) of 512x512'")
    shapes = tuple(tuple(map(int, shape.split("x"))) for shape in text.split(", "))
    code = compile(expression, "ops.csv", "eval")

    def call(*operands: Tensor) -> Any:
        return eval(code, {**_NAMES, **dict(zip("xy", operands, strict=False))})  # noqa: S307  the table's own

    return TypicalCall(call, shapes)


def scaled(shapes: tuple[Shape, ...], times: int) -> tuple[Shape, ...]:
    """Larger shapes of the same op."""
    return tuple(tuple(n * times if n >= LEAST_SCALED else n for n in shape) for shape in shapes)


def places(x: Tensor) -> Tensor:
    """As many places as ``x`` has elements, in disorder."""
    return (torch.arange(x.numel(), device=x.device) * 7919 % x.numel()).view(x.shape)


def unit(x: Tensor) -> Tensor:
    """A triangular matrix that is far from singular."""
    return x.triu() + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)


def targets(x: Tensor) -> Tensor:
    """Sixteen labels for each sequence of ``x``, which are its second dimension."""
    return torch.arange(16, device=x.device).expand(x.shape[1], 16) + 1


_NAMES = {"torch": torch, "F": F, "places": places, "unit": unit, "targets": targets}
