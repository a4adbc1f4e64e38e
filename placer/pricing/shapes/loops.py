"""Shapes of ops that walk their operands: element by element, by rows, channels and windows, and reductions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.innermost import Innermost, innermost, side_by_side
from placer.pricing.shapes.shape import (
    FINE_GRAIN,
    GRAIN,
    ONE_PIECE,
    Cut,
    OpWork,
    Shape,
    Walk,
    cut,
    has_true_argument,
    largest,
    operand_bytes,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall, TensorSpec

#: FLOPs per element from which on arithmetic takes longer than memory, whatever cache the element comes from.
_LONG = 10
#: Elements up to which ops that say so (``large`` in the table) stay on one core (ATen/native/cpu/Activation.cpp).
LARGE_GRAIN = 16384
#: Elements from which on a transposed matrix is copied in blocks.
_LEAST_TRANSPOSED = 60 * 60


@dataclass(frozen=True, slots=True)
class Loop(Shape):
    """A loop over all elements of a result."""

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

    def pieces(self, work: OpWork) -> float:
        """Pieces that the loop over all elements is cut into."""
        if "large" in work.row.traits and self.numel <= LARGE_GRAIN:
            return 1.0
        return cut(self.numel, work.row.grain or GRAIN)

    def cut(self, work: OpWork) -> Cut:
        """One core copies a transposed matrix block by block (``copy_same_type_transpose_`` in ATen/native/Copy.cpp).

        Only matrices are: what has more dimensions is not walked in two loops.
        """
        matrix = self.strided and self.block >= self.numel >= _LEAST_TRANSPOSED
        return ONE_PIECE if matrix and "transposes" in work.row.traits else Cut(self.pieces(work))

    def share(self, cores: float) -> Loop:
        numel = self.numel / cores
        return replace(
            self, numel=numel, bytes=self.bytes / cores, inner=min(self.inner, numel), block=min(self.block, numel)
        )

    @property
    def walk(self) -> Walk:
        return Walk(self.numel, self.block, self.inner, self.strided, self.broadcast, self.in_place)


@dataclass(frozen=True, slots=True)
class RandomNumbers(Loop):
    """A loop that draws random numbers, or uses some that were drawn."""


@dataclass(frozen=True, slots=True)
class Rows(Shape):
    """Rows that each depend on all of their elements: exponentials over their sum."""

    FLOPS_EACH: ClassVar[float] = 12.0
    SHARED: ClassVar[tuple[str, ...]] = ("numel",)

    #: Elements, and those of one row, the innermost dimension.
    numel: float
    row: float
    #: The operand is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        source = max(call.inputs, key=lambda t: t.numel)
        return cls(source.numel, source.shape[-1] if source.shape else 1, not source.contiguous)

    def cut(self, work: OpWork) -> Cut:
        return Cut(cut(self.numel, FINE_GRAIN), always=self.numel > self.row)


@dataclass(frozen=True, slots=True)
class OrderedRows(Rows):
    """Rows whose elements are brought into an order, or added up one after the other."""

    def cut(self, work: OpWork) -> Cut:
        """Rows are never split."""
        return Cut(min(cut(self.numel), max(self.numel / max(self.row, 1.0), 1.0)))


@dataclass(frozen=True, slots=True)
class Normalization(Shape):
    """A norm, whose statistics are of rows or of channels, or its gradient."""

    FLOPS_EACH: ClassVar[float] = 8.0
    SHARED: ClassVar[tuple[str, ...]] = ("numel",)

    numel: float
    #: Elements of the weight: channels, or the width of a row.
    channels: float
    #: The operand is not contiguous.
    strided: bool
    #: Statistics are taken of the batch.
    training: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        source = max(call.inputs, key=lambda t: t.numel)
        return cls(source.numel, _channels(call, source), not source.contiguous, has_true_argument(call))

    def _pieces(self, work: OpWork) -> float:
        """Cores share channels where each has statistics of the whole batch, else rows."""
        by_channel = "channels" in work.row.traits
        return max(self.channels if by_channel else self.numel / max(self.channels, 1.0), 1.0)

    def cut(self, work: OpWork) -> Cut:
        if "channels" in work.row.traits:
            return Cut(self._pieces(work), 4.0, always=True)
        return Cut(self._pieces(work), 2.0 if work.row.backward else 1.0)

    @property
    def walk(self) -> Walk:
        return Walk(self.numel, self.channels, strided=self.strided, flag=self.training)


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

    #: Elements of the larger side, and of the forward's result.
    numel: float
    pooled: float
    #: Elements that share one result.
    window: float
    #: The larger side is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        large = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
        small = call.inputs[0] if op.backward else call.outputs[0]
        return cls(large.numel, small.numel, max(large.numel / max(small.numel, 1), 1.0), not large.contiguous)

    def cut(self, work: OpWork) -> Cut:
        return Cut(cut(self.numel, FINE_GRAIN), always=True)

    @property
    def walk(self) -> Walk:
        return Walk(self.numel, self.pooled, self.window, self.strided)
