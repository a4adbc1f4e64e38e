"""What an op call does, whatever runs it, by the op's row in the table."""

from __future__ import annotations

from typing import NamedTuple

from placer.pricing.amounts import Amounts
from placer.pricing.ops import Effort, Op, evaluate, row_of
from placer.pricing.shapes import Shape, Update, kernels_of_update, operand_bytes
from placer.tracing import OpCall

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
