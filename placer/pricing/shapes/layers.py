"""Shapes of layers that run as one op, and of what a library does: attention, recurrent layers, factorisations."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from placer.pricing.shapes.shape import (
    ITEM,
    PRODUCT_GRAIN,
    Cut,
    Shape,
    Work,
    cut,
    pieces_of_products,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from placer.pricing.ops import Op
    from placer.tracing import OpCall

#: Share of attention with dropout that draws random numbers: 24.8 and 9.5 ms of two such ops on 16 threads
#: (calibration.journal.xz of the two records calibration/records/nvidia-h200*).
DRAWING = 0.4


@dataclass(frozen=True, slots=True)
class Attention(Shape):
    """Scaled dot-product attention, or its gradient."""

    #: Sequences x heads.
    batch: float
    #: Queries and keys of a sequence.
    length: float
    source: float
    #: Elements of a query.
    width: float
    #: A query sees only the keys up to its own position.
    causal: bool
    #: A mask is added to the scores.
    masked: bool
    #: Scores are dropped at random.
    dropout: bool
    #: Elements of a value; the gradient's products.
    value_width: float = 0.0
    backward: bool = False

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        q, k, v = [t for t in call.inputs if len(t.shape) >= 3][:3]
        length, width = q.shape[-2:]
        source = k.shape[-2]
        return cls(
            math.prod(q.shape[:-2]),
            length,
            source,
            width,
            causal=bool(call.args) and call.args[0] is True,
            masked=any(len(t.shape) >= 2 and t.shape[-2:] == (length, source) for t in call.inputs[3:]),
            dropout=len(call.args) > 2 and isinstance(call.args[2], float) and call.args[2] > 0.0,
            value_width=v.shape[-1],
            backward=op.backward,
        )

    @property
    def flops(self) -> float:
        """Two products of scores, five in the gradient."""
        scores = (5.0 if self.backward else 2.0) * self.batch * self.length * self.source
        return scores * (self.width + self.value_width)

    def cut(self, work: Work) -> Cut:
        """One core draws the random numbers of a dropout."""
        return Cut(pieces_of_products(work.flops), serial=DRAWING if self.dropout else 0.0)

    def share(self, cores: float) -> Attention:
        """Sequences x heads first, then queries."""
        several = min(self.batch, cores)
        return replace(self, batch=self.batch / several, length=self.length / (cores / several))


@dataclass(frozen=True, slots=True)
class Encoder(Shape):
    """A layer of a transformer's encoder as one op."""

    SHARED: ClassVar[tuple[str, ...]] = ("tokens",)
    WALK: ClassVar[tuple[str, ...]] = ("tokens", "length", "", "", "", "")

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

    def cut(self, work: Work) -> Cut:
        return Cut(pieces_of_products(work.flops))


@dataclass(frozen=True, slots=True)
class Matrices(Shape):
    """Matrices that are factorised, solved with or inverted; or vectors between which distances are taken."""

    WALK: ClassVar[tuple[str, ...]] = ("batch", "rows", "", "", "", "")

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
        matrix = max((t for t in call.inputs if len(t.shape) > 1), key=attrgetter("numel"))
        rows, columns = matrix.shape[-2:]
        return cls(math.prod(matrix.shape[:-2]), rows, columns, min(rows, columns))

    @property
    def flops(self) -> float:
        """For a square matrix that is its cube, up to a constant of each op."""
        return 2.0 * self.batch * self.rows * self.columns * self.inner

    def cut(self, work: Work) -> Cut:
        return Cut(max(math.sqrt(work.flops / PRODUCT_GRAIN), 1.0))


@dataclass(frozen=True, slots=True)
class Transform(Shape):
    """A Fourier transform."""

    SHARED: ClassVar[tuple[str, ...]] = ("numel",)
    WALK: ClassVar[tuple[str, ...]] = ("numel", "length", "", "strided", "", "")

    #: Elements of the larger side.
    numel: float
    #: Points of one transform.
    length: float
    #: The larger side is not contiguous.
    strided: bool

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        signal = max((*call.inputs, *call.outputs), key=attrgetter("numel"))
        dims = next((argument for argument in call.args if isinstance(argument, tuple)), (-1,))
        length = math.prod(signal.shape[d] for d in dims if isinstance(d, int)) or 1
        return cls(signal.numel, length, not signal.contiguous)

    @property
    def flops(self) -> float:
        """Cooley & Tukey, 1965."""
        return 5.0 * self.numel * math.log2(2.0 + self.length)

    def cut(self, work: Work) -> Cut:
        return Cut(cut(work.bytes / (2.0 * ITEM)))


#: Ops inside one time step of a layer.
OPS_IN_TIME_STEP = 8
#: Cores that layers gain from which torch runs op by op, without oneDNN: 64 steps of 32 rows of a GRU
#: take 11.6 ms on one thread, 7.7 on two and 6.2 on 16
#: (calibration/records/nvidia-h200-16-core-second/thread_ops.jsonl.xz).
STEP_BY_STEP = 2.0


@dataclass(frozen=True, slots=True)
class Recurrent(Shape):
    """Recurrent layers, or one cell of one."""

    #: Rows of every step's product, or columns of its weights.
    SHARED: ClassVar[tuple[str, ...]] = ("state",)
    SHARED_FROM_ONE: ClassVar[tuple[str, ...]] = ("batch",)

    #: Time steps; 1 of a cell.
    length: float
    #: Sequences.
    batch: float
    #: Elements of the input at one time step, and of the state of one sequence.
    input: float
    hidden: float
    #: Layers x directions.
    stacked: float
    #: Elements of the state of the whole batch, and of all weights.
    state: float
    weights: float
    #: The gradient.
    backward: bool
    #: Rows of all time steps.
    rows: float = 0.0

    @classmethod
    def read(cls, call: OpCall, op: Op) -> Self:
        sequence = call.inputs[0]
        cell = "cell" in op.traits
        rows = max(sequence.numel // max(sequence.shape[-1], 1), 1)
        # A cell's states are matrices like its weights, but come before them.
        states = (2 if "onednn" in op.traits else 1) if cell else 0
        matrices = [t for t in call.inputs[1 + states :] if len(t.shape) == 2]
        # A backward of a cell has gradients after the two weights. A layer's packed sequence is a matrix too.
        weights = matrices[:2] if cell else [t for t in matrices if t.shape != sequence.shape]
        hidden = weights[1].shape[-1] if len(weights) > 1 else sequence.shape[-1]
        length = 1 if cell else _length(call)
        batch = max(rows // length, 1)
        return cls(
            length,
            batch,
            sequence.shape[-1],
            hidden,
            max(len(weights) // 2, 1),
            batch * hidden,
            sum(w.numel for w in weights),
            op.backward,
            rows,
        )

    @property
    def flops(self) -> float:
        """All weights for every row, twice that for the gradient."""
        return 2.0 * (2.0 if self.backward else 1.0) * self.rows * self.weights

    @property
    def steps(self) -> float:
        """Time steps of all layers."""
        return self.length * self.stacked

    @property
    def ops_inside(self) -> int:
        return max(int(OPS_IN_TIME_STEP * self.steps), 1)

    def cut(self, work: Work) -> Cut:
        steps = max(self.steps, 1.0)
        pieces = pieces_of_products(work.flops / steps)
        if "onednn" in work.row.traits:  # every step of time is a region
            return Cut(pieces, steps, always=True)
        return Cut(min(pieces, STEP_BY_STEP), steps)

    def persistent(self, work: Work) -> bool:
        """Whether one kernel runs all time steps of a layer on a GPU, as its weights stay on the SMs.

        Those of small states do, and of larger ones in half precision (``use_rnn_persist_small_h`` and
        ``use_persist_common_heuristics`` in ATen/native/cudnn/RNN.cpp).
        """
        plain = "plain" in work.row.traits
        small = (256 if plain else 128) if self.backward else (384 if plain else 192)
        half = work.dtype.partition("+")[0] in ("float16", "bfloat16")
        whole = self.hidden <= 1024 and self.hidden % 128 == 0 and self.input % 128 == 0
        return self.hidden <= small or (half and self.stacked == 1 and whole)

    def launches(self, work: Work) -> float:
        """Some kernels for each layer, and two for each time step where it is not persistent.

        Counted in the calibrations of an H100 and an H200, over 200 layers (calibration/records).
        """
        if self.persistent(work):
            return (9.0 if self.backward else 3.0) * self.stacked
        return 2.1 * self.steps + (6.0 if self.backward else 1.0) * self.stacked


def _length(call: OpCall) -> int:
    """The number of time steps, which the tracer puts last among the arguments."""
    last = call.args[-1] if call.args else 1
    return max(last, 1) if isinstance(last, int) else 1
