"""The shape of reductions, and what summing columns fetches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.shape import GRAIN, ITEM, ONE_PIECE, Cut, OpWork, Shape, Walk, cut, largest

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall

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
class Reduction(Shape):
    """Elements that are reduced to fewer. It is cut by its results, or where it has but one by its operand."""

    FLOPS_EACH: ClassVar[float] = 1.0
    SHARED: ClassVar[tuple[str, ...]] = ("numel",)
    SHARED_FROM_ONE: ClassVar[tuple[str, ...]] = ("outputs",)

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
    def _row_results(self) -> float:
        """Rows that are each reduced to one number: starting and ending a row costs more than its elements do.

        There are none where columns are reduced, nor where there are as many results as elements, as in the gradient
        of a loss.
        """
        return self.outputs if 1 < self.outputs < self.numel and not self.inner_survives else 0.0

    def _pieces(self, work: OpWork) -> float:
        """Some ops keep columns together; of others any column is a piece of its own (``foreach_reduced_elt``)."""
        if self.numel < GRAIN:
            return 1.0
        if not 1 < self.outputs < self.numel:
            return cut(self.numel)
        together = self.inner_survives and "together" in work.row.traits
        return max(self.outputs // COLUMNS_TOGETHER, 1) if together else self.outputs

    def cut(self, work: OpWork) -> Cut:
        """No piece of some is smaller than the grain (``compare_base_kernel``), and of some no row is split.

        ``binary_kernel_reduce_lastdim`` in ATen/native/cpu/Reduce.h leaves a single row to one core.
        """
        if "whole_rows" in work.row.traits and self.outputs <= 1:
            return ONE_PIECE
        pieces = self._pieces(work)
        return Cut(min(pieces, cut(self.numel)) if "compares" in work.row.traits else pieces)

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
