"""How an elementwise kernel walks its operands: TensorIterator's innermost loop, from shapes and strides alone.

Dimensions that lie behind one another in every operand are walked as one (``TensorIteratorBase::coalesce_dimensions``
in ATen/TensorIterator.cpp). What is left innermost runs as one loop, vectorised where its elements are neighbours; the
loops around it cost some ten nanoseconds each time they start it: a million elements in rows of three are 333,333
starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placer.tracing.layout import broadcast_strides
from placer.tracing.trace import TensorSpec


@dataclass(frozen=True, slots=True)
class Loop:
    """The innermost loop: its ``length`` in elements, and whether an operand's elements lie apart along it."""

    length: int
    strided: bool


def innermost(written: TensorSpec, read: Sequence[TensorSpec]) -> Loop:
    """The innermost loop of a kernel that writes ``written`` from ``read``, broadcast to it or part of it."""
    shape = written.shape
    if written.contiguous and all(t.shape == shape and t.contiguous for t in read):
        return Loop(max(written.numel, 1), strided=False)
    whole = [t for t in read if _broadcasts(t, shape)]
    strides = [written.stride, *(broadcast_strides(t, shape) for t in whole)]
    order = sorted((d for d, n in enumerate(shape) if n != 1), key=lambda d: (strides[0][d], -d))
    if not order:
        return Loop(1, strided=False)
    inner, *outer = order
    length = shape[inner]
    for d in outer:
        if any(s[d] != s[inner] * length for s in strides):
            break
        length *= shape[d]
    # Parts of the result (concatenation, padding, a slice's gradient) are written piece by piece.
    pieces = [_piece(t, shape) for t in read if t.numel > 1 and not _broadcasts(t, shape)]
    return Loop(max(min([length, *pieces]), 1), strided=any(s[inner] > 1 for s in strides))


def _broadcasts(spec: TensorSpec, shape: Sequence[int]) -> bool:
    rank = len(spec.shape)
    return rank <= len(shape) and all(n in (1, m) for n, m in zip(spec.shape, shape[len(shape) - rank :], strict=True))


def _piece(spec: TensorSpec, shape: Sequence[int]) -> int:
    """Neighbouring elements that an operand and a result of other sizes have in common."""
    length = 1
    for n, m in zip(reversed(spec.shape), reversed(shape), strict=False):
        length *= max(min(n, m), 1)
        if n != m:
            break
    return length
