"""Shapes of ops that walk their operands: element by element, by rows, channels and windows, and reductions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.innermost import Innermost, innermost, side_by_side
from placer.pricing.shapes.shape import (
    FINE_GRAIN,
    GRAIN,
    ITEM,
    ONE_PIECE,
    Cut,
    Shape,
    Walk,
    cut,
    has_true_argument,
    largest,
    of_a_piece,
    of_busiest,
    operand_bytes,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.pricing.work import Work
    from placer.tracing import OpCall, TensorSpec

#: FLOPs per element from which on arithmetic takes longer than memory, whatever cache the element comes from.
_LONG = 10
#: Elements up to which ops that say so (``large`` in the table) stay on one core (ATen/native/cpu/Activation.cpp).
LARGE_GRAIN = 16384
#: Elements from which on a transposed matrix is copied in blocks.
_LEAST_TRANSPOSED = 60 * 60
#: Columns of 4 bytes that are never split where columns are reduced: 128 bytes of a row
#: (``parallel_dim_reduction`` in ATen/native/TensorIteratorReduce.cpp).
COLUMNS_TOGETHER = 32
#: Columns that one vector register sums, that the four registers of the fastest loop sum, and that are summed by four
#: single additions (``cascade_sum`` in ATen/native/cpu/SumKernel.cpp).
IN_A_VECTOR, IN_FOUR_VECTORS, SINGLE = 8, 32, 4
#: Bytes that a core's own caches hold, roughly. More than that is not in them, whatever the exact size.
CORE_CACHE = 2 << 20
#: Bytes of a cache line.
LINE = 64


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
            out, operand_bytes(call), min(loop.length, most), min(loop.block, most), loop.strided,
            broadcast=any(t.numel < out or 0 in t.stride for t in call.inputs if t.numel > 1),
            in_place=call.in_place, each=op.flops,
        )  # fmt: skip

    @property
    def flops(self) -> float:
        return self.each * self.numel

    def evaluates(self, flops: float) -> bool:
        """Whether so many FLOPs are a polynomial or a table for each element, which takes longer than fetching it."""
        return flops >= _LONG * self.numel > 0

    def amounts(self, work: Work, threads: int) -> dict[str, float]:
        own = {
            # How often the innermost loop starts again, how often the two innermost do, and elements that are not
            # adjacent in memory to the one before.
            "restarts": max(self.numel / max(self.inner, 1.0) - 1.0, 0.0),
            "blocks": max(self.numel / max(self.block, 1.0) - 1.0, 0.0),
            "strided": self.strided * self.numel,
        }
        return {**own, **of_busiest(self.pieces(work), threads, flops=work.flops, bytes=work.bytes, **own)}

    def earlier_amounts(self, work: Work, threads: int) -> dict[str, float]:
        return of_a_piece(self.numel, work)

    def pieces(self, work: Work) -> float:
        """Pieces that the loop over all elements is cut into."""
        traits = work.row.traits
        if "large" in traits and self.numel <= LARGE_GRAIN:
            return 1.0
        return cut(self.numel, FINE_GRAIN if "fine" in traits or "large" in traits else GRAIN)

    def cut(self, work: Work) -> Cut:
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

    def amounts(self, work: Work, threads: int) -> dict[str, float]:
        return {}

    def earlier_amounts(self, work: Work, threads: int) -> dict[str, float]:
        return {}

    def cut(self, work: Work) -> Cut:
        """One core draws: the generator has a lock."""
        return ONE_PIECE


@dataclass(frozen=True, slots=True)
class Rows(Shape):
    """Rows that each depend on all of their elements: exponentials over their sum."""

    #: Elements, and those of one row, the innermost dimension.
    numel: float
    row: float
    #: The operand is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        source = max(call.inputs, key=lambda t: t.numel)
        return cls(source.numel, source.shape[-1] if source.shape else 1, not source.contiguous)

    @property
    def flops(self) -> float:
        return 12.0 * self.numel

    def amounts(self, work: Work, threads: int) -> dict[str, float]:
        return of_busiest(cut(self.numel, FINE_GRAIN), threads, flops=work.flops, bytes=work.bytes)

    def earlier_amounts(self, work: Work, threads: int) -> dict[str, float]:
        return of_a_piece(self.numel, work)

    def cut(self, work: Work) -> Cut:
        return Cut(cut(self.numel, FINE_GRAIN), always=self.numel > self.row)

    def share(self, cores: float) -> Rows:
        return replace(self, numel=self.numel / cores)


@dataclass(frozen=True, slots=True)
class OrderedRows(Rows):
    """Rows whose elements are brought into an order, or added up one after the other."""

    ON_ACCELERATOR: ClassVar[tuple[str, ...]] = ("compared",)

    def amounts(self, work: Work, threads: int) -> dict[str, float]:
        return {"compared": self.numel * math.log2(2.0 + self.row)}

    def earlier_amounts(self, work: Work, threads: int) -> dict[str, float]:
        return {}

    def cut(self, work: Work) -> Cut:
        """Rows are never split."""
        return Cut(min(cut(self.numel), max(self.numel / max(self.row, 1.0), 1.0)))


@dataclass(frozen=True, slots=True)
class Normalization(Shape):
    """A norm, whose statistics are of rows or of channels, or its gradient."""

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

    @property
    def flops(self) -> float:
        return 8.0 * self.numel

    def amounts(self, work: Work, threads: int) -> dict[str, float]:
        return of_busiest(self._pieces(work), threads, flops=work.flops, bytes=work.bytes)

    def earlier_amounts(self, work: Work, threads: int) -> dict[str, float]:
        return of_a_piece(self.numel, work)

    def _pieces(self, work: Work) -> float:
        """Cores share channels where each has statistics of the whole batch, else rows."""
        by_channel = "channels" in work.row.traits
        return max(self.channels if by_channel else self.numel / max(self.channels, 1.0), 1.0)

    def cut(self, work: Work) -> Cut:
        if "channels" in work.row.traits:
            return Cut(self._pieces(work), 4.0, always=True)
        return Cut(self._pieces(work), 2.0 if work.row.backward else 1.0)

    def share(self, cores: float) -> Normalization:
        return replace(self, numel=self.numel / cores)

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

    ON_ACCELERATOR: ClassVar[tuple[str, ...]] = ("compared",)

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

    @property
    def flops(self) -> float:
        return float(self.numel)

    def amounts(self, work: Work, threads: int) -> dict[str, float]:
        """Elements of all windows."""
        return {"compared": self.pooled * self.window}

    def cut(self, work: Work) -> Cut:
        return Cut(cut(self.numel, FINE_GRAIN), always=True)

    def share(self, cores: float) -> Windows:
        return replace(self, numel=self.numel / cores, pooled=max(self.pooled / cores, 1.0))

    @property
    def walk(self) -> Walk:
        return Walk(self.numel, self.pooled, self.window, self.strided)


@dataclass(frozen=True, slots=True)
class Reduction(Shape):
    """Elements that are reduced to fewer. It is cut by its results, or where it has but one by its operand."""

    ON_ACCELERATOR: ClassVar[tuple[str, ...]] = ("row_results",)

    #: Elements that are read, and elements of the result.
    numel: float
    outputs: float
    #: The reduction runs over an outer dimension, which is another access pattern.
    inner_survives: bool
    #: The operand is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        source = max(call.inputs, key=lambda t: t.numel, default=None)
        if source is None:
            return cls(0, 0, inner_survives=False, strided=False)
        out = largest(call.outputs)
        kept = bool(call.outputs) and bool(source.shape) and bool(call.outputs[0].shape)
        inner_survives = kept and out > 1 and call.outputs[0].shape[-1] == source.shape[-1] > 1
        return cls(source.numel, out, inner_survives, not source.contiguous)

    @property
    def flops(self) -> float:
        return float(self.numel)

    @property
    def _row_results(self) -> float:
        """Rows that are each reduced to one number: starting and ending a row costs more than its elements do.

        There are none where columns are reduced, nor where there are as many results as elements, as in the gradient
        of a loss.
        """
        return self.outputs if 1 < self.outputs < self.numel and not self.inner_survives else 0.0

    def amounts(self, work: Work, threads: int) -> dict[str, float]:
        rows, by_columns = self._row_results, self.inner_survives
        of_a_core = {"additions": work.flops, "read_bytes": work.bytes, "results": rows}
        return {
            "row_results": rows,
            **of_busiest(self._pieces(work), threads, **of_a_core),
            "column_fetches": self._column_fetches(threads) if by_columns else 0.0,
            "column_refetches": self._column_refetches(threads) if by_columns else 0.0,
        }

    def earlier_amounts(self, work: Work, threads: int) -> dict[str, float]:
        """Cores were counted otherwise: of no op, fewer than 64 columns were shared."""
        pieces = cut(self.numel)
        if self.inner_survives:
            pieces = min(pieces, max(self.outputs // COLUMNS_TOGETHER, 1))
        cores = min(max(threads, 1), pieces)
        return {
            **of_a_piece(self.numel, work),
            "core_flops": work.flops / cores,
            "core_bytes": work.bytes / cores,
            "column_loads": self._column_fetches(1) if self.inner_survives else 0.0,
        }

    def _pieces(self, work: Work) -> float:
        """Some ops keep columns together; of others any column is a piece of its own (``foreach_reduced_elt``)."""
        if self.numel < GRAIN:
            return 1.0
        if not 1 < self.outputs < self.numel:
            return cut(self.numel)
        together = self.inner_survives and "together" in work.row.traits
        return max(self.outputs // COLUMNS_TOGETHER, 1) if together else self.outputs

    def cut(self, work: Work) -> Cut:
        """No piece of some is smaller than the grain (``compare_base_kernel`` in ATen/native/cpu)."""
        pieces = self._pieces(work)
        return Cut(min(pieces, cut(self.numel)) if "compares" in work.row.traits else pieces)

    def share(self, cores: float) -> Reduction:
        return replace(self, numel=self.numel / cores, outputs=max(self.outputs / cores, 1.0))

    @property
    def walk(self) -> Walk:
        return Walk(self.numel, self.outputs, strided=self.strided, flag=self.inner_survives)

    def _columns(self, threads: int) -> float:
        """Columns of the busiest thread: the last one, which also gets what the others leave of their last bundle."""
        if threads < 2 or self.numel < GRAIN:
            return self.outputs
        others = self.outputs * (threads - 1) // threads
        return self.outputs - others // COLUMNS_TOGETHER * COLUMNS_TOGETHER

    def _column_fetches(self, threads: int) -> float:
        """Fetches where columns are summed.

        Columns that fill four vector registers take one pass over the rows, those left over that fill one register
        another, and each one after that a pass of its own: 31 columns take seven times as long as 32.
        """
        return self.numel / self.outputs * sum(_passes(self._columns(threads)))

    def _column_refetches(self, threads: int) -> float:
        """Bytes that are fetched again where columns are summed that no core's own cache holds.

        Every pass goes through all rows and fetches whole lines of them: 40,000 rows of 20 columns, 3 MB, are fetched
        six times, once for 16 columns and once for each of the other four.
        """
        rows, mine = self.numel / self.outputs, self._columns(threads)
        whole, thin = _passes(mine)
        fetched = whole * ITEM * IN_FOUR_VECTORS + thin * min(LINE, ITEM * self.outputs)
        # Passes for fewer than 32 columns go through the same two lines of every row. A cache that is walked over and
        # over keeps next to nothing once the lines are a third larger than it.
        beyond = 3.0 * (rows * min(2 * LINE, ITEM * self.outputs) / CORE_CACHE - 1.0)
        return min(max(beyond, 0.0), 1.0) * rows * max(fetched - ITEM * mine, 0.0)


def _passes(columns: float) -> tuple[float, float]:
    """Passes over all rows: those that sum 32 columns at once, and those that sum fewer."""
    if columns < IN_A_VECTOR:
        return 0, columns // SINGLE + columns % SINGLE
    fours, rest = divmod(columns, IN_FOUR_VECTORS)
    return fours, rest // IN_A_VECTOR + rest % IN_A_VECTOR
