"""The shape of reductions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.shape import GRAIN, ONE_PIECE, Cut, OpWork, Shape, Walk, cut, largest

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall

#: Columns of 4 bytes that are never split where columns are reduced: 128 bytes of a row
#: (``parallel_dim_reduction`` in ATen/native/TensorIteratorReduce.cpp).
COLUMNS_TOGETHER = 32


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
