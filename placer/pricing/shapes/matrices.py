"""Shapes of ops around products: a transformer's layer as one op, matrices that are factorised, and transforms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.shape import ITEM, PRODUCT_GRAIN, Cut, OpWork, Shape, cut, pieces_of_products

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall


@dataclass(frozen=True, slots=True)
class Encoder(Shape):
    """A layer of a transformer's encoder as one op."""

    SHARED: ClassVar[tuple[str, ...]] = ("tokens",)

    #: Tokens of all sequences, and of one.
    tokens: float
    length: float
    #: Elements of a token, and of all weight matrices.
    width: float
    weights: float
    #: Heads of the attention.
    heads: float

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        source = call.inputs[0]
        tokens, width = max(source.numel // source.shape[-1], 1), source.shape[-1]
        length = source.shape[-2] if len(source.shape) > 2 else tokens
        # A mask is a matrix too, but neither of its sides is the width.
        weights = sum(t.numel for t in call.inputs[1:] if len(t.shape) == 2 and width in t.shape)
        heads = call.args[1] if len(call.args) > 1 and type(call.args[1]) is int else 1
        return cls(tokens, length, width, weights, heads)

    @property
    def flops(self) -> float:
        """The layer's products, and those of its attention."""
        return 2.0 * self.tokens * self.weights + 4.0 * self.tokens * self.length * self.width

    def cut(self, work: OpWork) -> Cut:
        return Cut(pieces_of_products(work.flops))


@dataclass(frozen=True, slots=True)
class Matrices(Shape):
    """Matrices that are factorised, solved with or inverted; or vectors between which distances are taken."""

    #: Matrices.
    batch: float
    #: Of a matrix; of distances, vectors of either set.
    rows: float
    columns: float
    #: The shorter side of a matrix; of distances, elements of a vector.
    inner: float

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        if "distances" in op.traits:
            a, b = call.inputs[1:3] if op.backward else call.inputs[:2]
            return cls(math.prod(a.shape[:-2]), a.shape[-2], b.shape[-2], a.shape[-1])
        matrix = max((t for t in call.inputs if len(t.shape) > 1), key=lambda t: t.numel)
        rows, columns = matrix.shape[-2:]
        return cls(math.prod(matrix.shape[:-2]), rows, columns, min(rows, columns))

    @property
    def flops(self) -> float:
        """For a square matrix that is its cube, up to a constant of each op."""
        return 2.0 * self.batch * self.rows * self.columns * self.inner

    def cut(self, work: OpWork) -> Cut:
        return Cut(max(math.sqrt(work.flops / PRODUCT_GRAIN), 1.0))


@dataclass(frozen=True, slots=True)
class Transform(Shape):
    """A Fourier transform."""

    SHARED: ClassVar[tuple[str, ...]] = ("numel",)

    #: Elements of the larger side.
    numel: float
    #: Points of one transform.
    length: float
    #: The larger side is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        signal = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
        dims = next((argument for argument in call.args if isinstance(argument, tuple)), (-1,))
        length = math.prod(signal.shape[d] for d in dims if isinstance(d, int)) or 1
        return cls(signal.numel, length, not signal.contiguous)

    @property
    def flops(self) -> float:
        """Cooley & Tukey, 1965."""
        return 5.0 * self.numel * math.log2(2.0 + self.length)

    def cut(self, work: OpWork) -> Cut:
        return Cut(cut(work.bytes / (2.0 * ITEM)))
