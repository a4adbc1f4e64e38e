"""The innermost loops of a kernel that walks its operands: how long they are, and whether elements are adjacent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placer.tracing import OpCall, TensorSpec, broadcast_strides


@dataclass(frozen=True, slots=True)
class Innermost:
    """The innermost loop: its ``length`` in elements, and whether an operand is ``strided`` along it.

    ``block``: elements of the two innermost loops together.
    """

    length: int
    block: int
    strided: bool


def innermost(written: TensorSpec, read: Sequence[TensorSpec]) -> Innermost:
    """The innermost loops of a kernel that writes ``written`` from ``read``, broadcast to it or part of it."""
    shape, numel = written.shape, max(written.numel, 1)
    if written.contiguous and all(t.shape == shape and t.contiguous for t in read):
        return Innermost(numel, numel, strided=False)
    whole = [t for t in read if _broadcasts(t, shape)]
    strides = [written.stride, *(broadcast_strides(t, shape) for t in whole)]
    order = sorted((d for d, n in enumerate(shape) if n != 1), key=lambda d: (strides[0][d], -d))
    if not order:
        return Innermost(1, 1, strided=False)
    length, block = _coalesced(shape, order, strides)
    # Parts of the result (padding, a slice's gradient) are written piece by piece.
    for t in read:
        if t.numel > 1 and not _broadcasts(t, shape):
            piece_length, piece_block = _piece(t, shape)
            length, block = min(length, piece_length), min(block, piece_block)
    return Innermost(max(length, 1), max(block, length, 1), strided=any(s[order[0]] > 1 for s in strides))


def side_by_side(call: OpCall) -> Innermost:
    """The innermost loops of a call that puts its operands side by side: each is copied run by run.

    The elements of a run are adjacent in the result: those of all dimensions from the one on along which operands lie
    (``cat_serial_kernel`` in ATen/native/cpu/CatKernel.cpp). Of operands that differ, the mean run counts.
    """
    parts = [t for t in call.inputs if t.numel]
    dim = call.args[0] if call.args and isinstance(call.args[0], int) else 0
    dim %= max(len(call.outputs[0].shape), 1)
    elements = sum(t.numel for t in parts)
    runs = sum(math.prod(t.shape[:dim]) for t in parts)
    return Innermost(max(elements // max(runs, 1), 1), max(elements // max(len(parts), 1), 1), strided=False)


def _coalesced(shape: Sequence[int], order: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Elements of the innermost loop, and of the two innermost, after dimensions are coalesced.

    ``order`` names the dimensions of ``shape`` from the innermost on; ``strides`` are those of every operand.
    """
    sizes: list[int] = []
    start = order[0]
    for d in order:
        if sizes and all(s[d] == s[start] * sizes[-1] for s in strides):
            sizes[-1] *= shape[d]
        elif len(sizes) == 2:
            break
        else:
            sizes.append(shape[d])
            start = d
    return sizes[0], math.prod(sizes)


def _broadcasts(spec: TensorSpec, shape: Sequence[int]) -> bool:
    rank = len(spec.shape)
    return rank <= len(shape) and all(n in (1, m) for n, m in zip(spec.shape, shape[len(shape) - rank :], strict=True))


def _piece(spec: TensorSpec, shape: Sequence[int]) -> tuple[int, int]:
    """Elements that an operand and a result of other sizes walk in one loop, and in the two innermost."""
    sizes = [1, 1]
    inner = 0
    for n, m in zip(reversed(spec.shape), reversed(shape), strict=False):
        sizes[inner] *= max(min(n, m), 1)
        if n != m:  # beyond this dimension the elements are not adjacent
            if inner:
                break
            inner = 1
    return sizes[0], sizes[0] * sizes[1]
