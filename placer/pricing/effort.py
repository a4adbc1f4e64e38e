"""What an op call does, whatever runs it: the formulas of the op's row in the table, by amounts of the call.

Amounts are computed where a formula asks for them. Sizes are in elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from placer.lazy import cached_property
from placer.pricing.ops import Effort, Op, evaluate, row_of
from placer.pricing.shapes.moves import Update, kernels_of_update
from placer.pricing.shapes.shape import Shape, has_true_argument, largest, operand_bytes
from placer.tracing import OpCall, TensorSpec


class Amounts:
    """The amounts of one call, by name."""

    def __init__(self, call: OpCall, op: Op, shape: Shape, flops: float) -> None:
        """``flops``: what the op's family counts."""
        self._call, self._op, self._shape, self.flops = call, op, shape, flops

    def __getitem__(self, name: str) -> Any:
        """The amount ``name``. Raises KeyError of a name that is none, as what evaluates a formula expects."""
        if name in _NAMES:
            return getattr(self, name)
        if name in type(self._shape).__dataclass_fields__:
            return getattr(self._shape, name)
        raise KeyError(name)

    @cached_property
    def numel(self) -> float:
        """The largest operand or result."""
        return float(max(largest(self._call.inputs), largest(self._call.outputs)))

    @cached_property
    def results(self) -> float:
        """The largest result."""
        return float(largest(self._call.outputs))

    @cached_property
    def first(self) -> float:
        """The first operand, or where there is none the largest result."""
        return float(self._call.inputs[0].numel) if self._call.inputs else self.results

    def elements(self, number: int) -> float:
        """The operand of that number; 1 where there is none."""
        return float(self._call.inputs[number].numel) if number < len(self._call.inputs) else 1.0

    def size(self, number: int, dim: int) -> float:
        """A dimension of that operand; 1 where it has no such one. Numbers go round."""
        shape = self._call.inputs[number % len(self._call.inputs)].shape
        return float(shape[dim]) if -len(shape) <= dim < len(shape) else 1.0

    def rank(self, number: int) -> int:
        """Dimensions of that operand."""
        return len(self._call.inputs[number].shape)

    # Rows along one dimension.
    @cached_property
    def _dimension(self) -> int:
        """The dimension that is walked, of an operand that has some: the first number among the arguments that can be
        one, after what the op selects; else the last."""
        rank = len(self._call.inputs[0].shape)
        skip = 1 if "k_first" in self._op.traits else 0
        dim = next((a for a in self._call.args[skip:] if type(a) is int), -1)
        return dim % rank if -rank <= dim < rank else rank - 1

    @cached_property
    def all_in_one(self) -> bool:
        """All elements are one row, as no dimension was asked for."""
        return "whole_without_dim" in self._op.traits and not self._call.args

    @cached_property
    def row(self) -> float:
        """Elements along the dimension that is walked."""
        if not self._call.inputs or not self._call.inputs[0].shape:
            return 1.0
        if "whole" in self._op.traits or self.all_in_one:
            return float(self._call.inputs[0].numel)
        return float(self._call.inputs[0].shape[self._dimension])

    @cached_property
    def rows(self) -> float:
        """How many of these there are."""
        return self.first / max(self.row, 1.0)

    @cached_property
    def inner(self) -> float:
        """Elements between those that follow each other along that dimension."""
        shape = self._call.inputs[0].shape
        return float(math.prod(shape[self._dimension + 1 :])) if shape else 1.0

    @cached_property
    def innermost(self) -> bool:
        """That dimension is the last one."""
        rank = len(self._call.inputs[0].shape) if self._call.inputs else 0
        return rank <= 1 or self._dimension == rank - 1

    # Norms and losses: what one block or thread of an accelerator goes through.
    @cached_property
    def _source(self) -> TensorSpec:
        return max(self._call.inputs, key=attrgetter("numel"))

    @cached_property
    def training(self) -> bool:
        """Statistics are taken of the batch."""
        return has_true_argument(self._call)

    @cached_property
    def of_group(self) -> float:
        """Elements of a group of channels: there are as many as statistics."""
        groups = max((t.numel for t in self._call.outputs if len(t.shape) == 2), default=self._source.shape[0])
        return self._source.numel / max(groups, 1)

    @cached_property
    def normalized(self) -> float:
        """Elements of a row of a norm: those of its weight, or of the dimensions that an argument names."""
        source = self._source
        weights = [t.numel for t in self._call.inputs if t.numel < source.numel]
        named = next((math.prod(a) for a in self._call.args if isinstance(a, tuple)), 0)
        return float(max((size for size in (*weights, named) if size), default=_last(source)))

    # Matrices.
    @cached_property
    def _matrix(self) -> Sequence[float]:
        matrix = max((t for t in self._call.inputs if len(t.shape) > 1), key=attrgetter("numel"), default=None)
        if matrix is None:
            return 1.0, 1.0, 1.0
        return float(math.prod(matrix.shape[:-2])), float(matrix.shape[-2]), float(matrix.shape[-1])

    @cached_property
    def matrices(self) -> float:
        """Matrices of the largest operand."""
        return self._matrix[0]

    @cached_property
    def side(self) -> float:
        """The shorter side of one."""
        return min(self._matrix[1:])

    @cached_property
    def cubes(self) -> float:
        """Rows x columns x the shorter side of each."""
        return math.prod(self._matrix) * self.side

    # Images, windows and sequences.
    @cached_property
    def windows(self) -> float:
        """Windows of pooling."""
        return float((self._call.inputs if self._op.backward else self._call.outputs)[0].numel)

    @cached_property
    def windowed(self) -> float:
        """Elements of all windows; the larger side where windows tile it."""
        size = self._call.args[0] if self._call.args and isinstance(self._call.args[0], tuple) else ()
        if not size or "tiles" in self._op.traits:
            return self.numel
        return self.windows * math.prod(n for n in size if isinstance(n, int))

    @cached_property
    def transformed(self) -> float:
        """Dimensions that are transformed."""
        return float(len(next((a for a in self._call.args if isinstance(a, tuple)), (0,))))


def _last(spec: TensorSpec) -> float:
    return float(spec.shape[-1]) if spec.shape else 1.0


#: The names that formulas may use besides fields of shapes.
_NAMES = frozenset(name for name in dir(Amounts) if not name.startswith("_")) | {"flops"}


#: Arithmetic on complex numbers in terms of real ones: products that are added up, and one product of two.
_COMPLEX_PRODUCTS, _COMPLEX = 4.0, 6.0
_COMPLEX_TYPES = frozenset(("complex64", "complex128"))
#: Dtypes of which a vector register holds fewer numbers than of float32.
_WIDE = frozenset(("float64", *_COMPLEX_TYPES))
#: Vectors from which on Euclidean distances are a product of matrices (``cdist_impl`` in ATen/native/Distance.cpp), and
#: the row of the op that they are then.
_BY_PRODUCT, _PRODUCT_ROW = 25, "_euclidean_dist"


#: What moves nothing, and runs nowhere.
NOTHING = Effort(0.0, 0.0, 0.0)


class Counted(NamedTuple):
    """What an op's work is proportional to: units, and starts (rows, matrices, pairs) that are begun anew.

    ``wide``: times the cycles of float32 numbers that those of the call take. ``names``: what formulas may name.
    """

    op: Op
    units: float
    starts: float
    wide: float
    names: Amounts


def counted(call: OpCall, op: Op, shape: Shape, flops: float) -> Counted:
    """What a call does of its op, of which the table says something, or of the op that the call really is."""
    if "as_product" in op.traits and _is_product(call):
        op = row_of(_PRODUCT_ROW)
    names = Amounts(call, op, shape, flops)
    wide = next((t.item_bytes / 4.0 for t in call.inputs if t.dtype in _WIDE), 1.0)
    return Counted(op, evaluate(op.units, names, 0.0), evaluate(op.starts, names, 0.0), wide, names)


def effort(call: OpCall, op: Op, shape: Shape, flops: float, moved: float) -> Effort | None:
    """What a call does by its row in the table; None where that says nothing of it.

    ``flops`` and ``moved`` are the arithmetic that the op's family counts, and the bytes of one pass.
    """
    if not op.kind:
        return None
    op, units, starts, wide, names = counted(call, op, shape, flops)
    executed = op.executed * units + op.executed_start * starts
    if any(t.dtype in _COMPLEX_TYPES for t in (*call.inputs, *call.outputs)):
        executed *= _COMPLEX_PRODUCTS if op.units == "flops" else _COMPLEX
    if "all_operands" in op.traits:
        moved = operand_bytes(call)
    if isinstance(shape, Update):
        kernels = kernels_of_update(call, op)
    else:
        kernels, moved = evaluate(op.kernels, names, 1.0), op.passes * moved
    if op.again:
        moved += op.again * sum(t.touched_bytes for t in call.outputs)
    cycles = wide * (op.cycles * units + op.start_cycles * starts)
    if "list" in op.traits:  # units are those of one tensor of the list, starts its further tensors
        cycles = wide * op.cycles * units * len(call.outputs) + op.start_cycles * (len(call.outputs) - 1)
    return Effort(executed, moved, kernels, op.waits, cycles, op.shared, op.kind, starts)


def dependent_loads(call: OpCall, op: Op, shape: Shape) -> float:
    """Loads that follow each other in the busiest thread of an accelerator; 0.0 of an op that fills it anyway.

    A kernel of few blocks is bound by neither arithmetic nor bandwidth: each of its threads waits for one load after
    the other. A layer norm over 4 million numbers is one block of 128 threads, and takes 8 to 10 ms on a T4 and on an
    H100 alike. The table has the sizes of blocks in ATen/native/cuda (layer_norm_kernel.cu, group_norm_kernel.cu,
    Normalization.cuh, PersistentSoftmax.cuh, SoftMax.cu, NLLLoss.cu).
    """
    if not op.loads or not any(t.numel for t in call.inputs):
        return 0.0
    return evaluate(op.loads, Amounts(call, op, shape, 0.0), 0.0)


def _is_product(call: OpCall) -> bool:
    """Whether distances are computed by a product: Euclidean ones of many vectors, unless that is forbidden."""
    if call.args[:1] != (2.0,):
        return False
    mode = call.args[1] if len(call.args) > 1 else None
    a, b = [t for t in call.inputs if len(t.shape) > 1][:2]
    return mode == 1 or (mode in (None, 0) and max(a.shape[-2], b.shape[-2]) > _BY_PRODUCT)
