"""Shapes of ops that walk their operands: element by element, by rows, channels and windows, and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.shape import (
    FINE_GRAIN,
    GRAIN,
    ONE_PIECE,
    Cut,
    Shape,
    Work,
    cut,
    has_true_argument,
    largest,
    operand_bytes,
)
from placer.tracing import OpCall, TensorSpec, broadcast_strides

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall, TensorSpec


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


#: FLOPs per element from which on arithmetic takes longer than memory, whatever cache the element comes from.
_LONG = 10
#: Elements up to which ops that say so (``large`` in the table) stay on one core (ATen/native/cpu/Activation.cpp).
LARGE_GRAIN = 16384
#: Elements from which on a transposed matrix is copied in blocks.
_LEAST_TRANSPOSED = 60 * 60


@dataclass(frozen=True, slots=True)
class Loop(Shape):
    """A loop over all elements of a result."""

    WALK: ClassVar[tuple[str, ...]] = ("numel", "block", "inner", "strided", "broadcast", "in_place")

    #: Elements of the result.
    numel: float
    #: Bytes of all operands and results.
    bytes: float
    #: Elements of the innermost loop, and of the two innermost loops together.
    inner: float
    block: float
    #: Elements that follow each other in the innermost loop are not adjacent in memory.
    strided: bool
    #: An operand is smaller than the result, or expanded to it.
    broadcast: bool
    #: An operand is overwritten.
    in_place: bool
    #: FLOPs of an element: more than one of functions that are a polynomial or a table.
    each: float = 1.0

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        out = max(largest(call.outputs), largest(call.inputs) if call.in_place else 0)
        written = call.inputs[:1] if call.in_place else call.outputs[:1]
        loop = Innermost(1, 1, strided=False)
        if written:
            loop = side_by_side(call) if "side_by_side" in op.traits else innermost(written[0], call.inputs)
        most = max(out, 1)
        return cls(
            out,
            operand_bytes(call),
            min(loop.length, most),
            min(loop.block, most),
            loop.strided,
            broadcast=any(t.numel < out or 0 in t.stride for t in call.inputs if t.numel > 1),
            in_place=call.in_place,
            each=op.flops,
        )

    @property
    def flops(self) -> float:
        return self.each * self.numel

    def evaluates(self, flops: float) -> bool:
        """Whether so many FLOPs are a polynomial or a table for each element, which takes longer than fetching it."""
        return flops >= _LONG * self.numel > 0

    def cut(self, work: Work) -> Cut:
        """One core copies a transposed matrix block by block (``copy_same_type_transpose_`` in ATen/native/Copy.cpp).

        Only matrices are: what has more dimensions is not walked in two loops.
        """
        matrix = self.strided and self.block >= self.numel >= _LEAST_TRANSPOSED
        traits = work.row.traits
        if (matrix and "transposes" in traits) or ("large" in traits and self.numel <= LARGE_GRAIN):
            return ONE_PIECE
        return Cut(cut(self.numel, work.row.grain or GRAIN))

    def share(self, cores: float) -> Loop:
        numel = self.numel / cores
        return replace(
            self, numel=numel, bytes=self.bytes / cores, inner=min(self.inner, numel), block=min(self.block, numel)
        )


@dataclass(frozen=True, slots=True)
class RandomNumbers(Loop):
    """A loop that draws random numbers, or uses some that were drawn."""


@dataclass(frozen=True, slots=True)
class Rows(Shape):
    """Rows that each depend on all of their elements: exponentials over their sum."""

    FLOPS_EACH: ClassVar[float] = 12.0
    SHARED: ClassVar[tuple[str, ...]] = ("numel",)
    WALK: ClassVar[tuple[str, ...]] = ("numel", "row", "", "strided", "", "")

    #: Elements, and those of one row, the innermost dimension.
    numel: float
    row: float
    #: The operand is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        source = max(call.inputs, key=attrgetter("numel"))
        return cls(source.numel, source.shape[-1] if source.shape else 1, not source.contiguous)

    def cut(self, work: Work) -> Cut:
        return Cut(cut(self.numel, FINE_GRAIN), always=self.numel > self.row)


@dataclass(frozen=True, slots=True)
class OrderedRows(Rows):
    """Rows whose elements are brought into an order, or added up one after the other."""

    def cut(self, work: Work) -> Cut:
        """Rows are never split."""
        return Cut(min(cut(self.numel), max(self.numel / max(self.row, 1.0), 1.0)))


@dataclass(frozen=True, slots=True)
class Normalization(Shape):
    """A norm, whose statistics are of rows or of channels, or its gradient."""

    FLOPS_EACH: ClassVar[float] = 8.0
    SHARED: ClassVar[tuple[str, ...]] = ("numel",)
    WALK: ClassVar[tuple[str, ...]] = ("numel", "channels", "", "strided", "", "training")

    numel: float
    #: Elements of the weight: channels, or the width of a row.
    channels: float
    #: The operand is not contiguous.
    strided: bool
    #: Statistics are taken of the batch.
    training: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        source = max(call.inputs, key=attrgetter("numel"))
        return cls(source.numel, _channels(call, source), not source.contiguous, has_true_argument(call))

    def cut(self, work: Work) -> Cut:
        """Cores share channels where each has statistics of the whole batch, else rows."""
        if "channels" in work.row.traits:
            return Cut(max(self.channels, 1.0), 4.0, always=True)
        return Cut(max(self.numel / max(self.channels, 1.0), 1.0), 2.0 if work.row.backward else 1.0)


def _channels(call: OpCall, source: TensorSpec) -> int:
    """Elements of the weight, which may be missing, and may have the last dimensions of the operand."""
    weight = max((t.numel for t in call.inputs if len(t.shape) == 1), default=0)
    if not weight:
        whole = (t for t in call.inputs if 1 < len(t.shape) < len(source.shape))
        weight = max((t.numel for t in whole if t.shape == source.shape[-len(t.shape) :]), default=0)
    return weight or max((t.numel for t in call.outputs if len(t.shape) == 1), default=source.shape[-1])


@dataclass(frozen=True, slots=True)
class Windows(Shape):
    """Windows of an image that each become one number, or the other way round: pooling and interpolation."""

    FLOPS_EACH: ClassVar[float] = 1.0
    SHARED: ClassVar[tuple[str, ...]] = ("numel",)
    SHARED_FROM_ONE: ClassVar[tuple[str, ...]] = ("pooled",)
    WALK: ClassVar[tuple[str, ...]] = ("numel", "pooled", "window", "strided", "", "")

    #: Elements of the larger side, and of the forward's result.
    numel: float
    pooled: float
    #: Elements that share one result.
    window: float
    #: The larger side is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        large = max((*call.inputs, *call.outputs), key=attrgetter("numel"))
        small = call.inputs[0] if op.backward else call.outputs[0]
        return cls(large.numel, small.numel, max(large.numel / max(small.numel, 1), 1.0), not large.contiguous)

    def cut(self, work: Work) -> Cut:
        return Cut(cut(self.numel, FINE_GRAIN), always=True)


#: Columns of 4 bytes that are never split where columns are reduced: 128 bytes of a row
#: (``parallel_dim_reduction`` in ATen/native/TensorIteratorReduce.cpp).
COLUMNS_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Reduction(Shape):
    """Elements that are reduced to fewer. It is cut by its results, or where it has but one by its operand."""

    FLOPS_EACH: ClassVar[float] = 1.0
    SHARED: ClassVar[tuple[str, ...]] = ("numel",)
    SHARED_FROM_ONE: ClassVar[tuple[str, ...]] = ("outputs",)
    WALK: ClassVar[tuple[str, ...]] = ("numel", "outputs", "", "strided", "", "inner_survives")

    #: Elements that are read, and elements of the result.
    numel: float
    outputs: float
    #: The reduction runs over an outer dimension, which is another access pattern.
    inner_survives: bool
    #: The operand is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        source = max(call.inputs, key=attrgetter("numel"), default=None)
        if source is None:
            return cls(0, 0, inner_survives=False, strided=False)
        out = largest(call.outputs)
        has_rows = bool(call.outputs) and bool(source.shape) and bool(call.outputs[0].shape)
        inner_survives = has_rows and out > 1 and call.outputs[0].shape[-1] == source.shape[-1] > 1
        return cls(source.numel, out, inner_survives, not source.contiguous)

    def cut(self, work: Work) -> Cut:
        """Some ops keep columns together; of others any column is a piece of its own (``foreach_reduced_elt``).

        ``binary_kernel_reduce_lastdim`` in ATen/native/cpu/Reduce.h leaves a single row to one core. No piece of what
        ``compares`` is smaller than the grain (``compare_base_kernel``).
        """
        traits = work.row.traits
        if self.numel < GRAIN or ("whole_rows" in traits and self.outputs <= 1):
            return ONE_PIECE
        pieces = cut(self.numel)
        if not 1 < self.outputs < self.numel:
            return Cut(pieces)
        together = self.inner_survives and "together" in traits
        by_result = max(self.outputs // COLUMNS_TOGETHER, 1) if together else self.outputs
        return Cut(min(by_result, pieces) if "compares" in traits else by_result)
