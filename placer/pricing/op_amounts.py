"""What an op's work is proportional to: named amounts of a call, and how many kernels follow each other in it.

An amount is (units, starts): what is done for each unit, and for each row, matrix or pair that is begun anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from placer.tracing import OpCall, TensorSpec

Amount: TypeAlias = Callable[[OpCall, float], tuple[float, float]]
#: Kernels that follow each other in a call.
Sequence: TypeAlias = Callable[[OpCall], float]

#: Larger matrices of a batch are factorised one after the other where the library has no kernel for all of them.
SMALL_MATRIX = 32


def _numel(specs: tuple[TensorSpec, ...]) -> float:
    most = 0
    for spec in specs:
        most = max(spec.numel, most)
    return float(most)


def elements(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements of the largest operand or result."""
    return max(_numel(call.inputs), _numel(call.outputs)), 0.0


def results(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements of the largest result."""
    return _numel(call.outputs), 0.0


def given(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements of the first operand."""
    return float(call.inputs[0].numel) if call.inputs else 0.0, 0.0


def counted(_call: OpCall, flops: float) -> tuple[float, float]:
    """What the op's family counts: products, convolutions, attention and transforms."""
    return flops, 0.0


#: Optimizers whose updates torch runs tensor by tensor whatever is asked for, and kernels of such an update: 64 tensors
#: take 5 to 9 ms on an H200, where Adam's take 0.6 ms together and 5.8 ms one by one.
_ONE_BY_ONE, _KERNELS_OF_UPDATE = frozenset(("Rprop", "ASGD", "Adafactor", "SparseAdam")), 12.0


def updated(call: OpCall) -> float:
    """Kernels that follow each other in the update of one tensor, where it is updated alone."""
    name = call.op.rpartition("::")[2]
    fused = ("fused", True) in call.args
    alone = name in _ONE_BY_ONE or ("foreach", False) in call.args
    return _KERNELS_OF_UPDATE if alone and not fused else 1.0


def dimension(call: OpCall) -> int:
    """The dimension that a call walks: the first number among its arguments that can be one, after what ``kthvalue``
    and ``topk`` select; else the last. 0 or more, of an operand that has dimensions."""
    rank = len(call.inputs[0].shape)
    skip = 1 if call.op in ("aten::topk", "aten::kthvalue") else 0
    dim = next((a for a in call.args[skip:] if type(a) is int), -1)
    return dim % rank if -rank <= dim < rank else rank - 1


def row_of(call: OpCall) -> float:
    """Elements along the dimension that is sorted, selected or scanned."""
    if not call.inputs or not call.inputs[0].shape:
        return 1.0
    if call.op in _WHOLE or (call.op in _WHOLE_WITHOUT and not call.args):
        return float(call.inputs[0].numel)
    return float(call.inputs[0].shape[dimension(call)])


#: Ops that take all elements for one row, and those that do without arguments.
_WHOLE = frozenset(("aten::_unique2", "aten::_unique", "aten::unique_consecutive", "aten::randperm"))
_WHOLE_WITHOUT = frozenset(("aten::median", "aten::nanmedian"))


def bagged(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements of the rows that bags pick, and bags."""
    table, picked = call.inputs[0], call.inputs[1]
    return float(picked.numel * table.shape[-1]), _numel(call.outputs[:1]) / table.shape[-1]


def rows(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements, and rows of them."""
    numel = float(call.inputs[0].numel) if call.inputs else _numel(call.outputs)
    return numel, numel / max(row_of(call), 1.0)


def ordered(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements x log2 of a row, and rows."""
    numel, begun = rows(call, 0.0)
    return numel * math.log2(2.0 + numel / max(begun, 1.0)), begun


def permuted(call: OpCall, _flops: float) -> tuple[float, float]:
    """Numbers of a random order."""
    return _numel(call.outputs), 1.0


def _matrix(call: OpCall) -> tuple[float, float, float]:
    """(Matrices, rows, columns) of the largest matrix."""
    matrix = max((t for t in call.inputs if len(t.shape) > 1), key=lambda t: t.numel, default=None)
    if matrix is None:
        return 1.0, 1.0, 1.0
    return float(math.prod(matrix.shape[:-2])), float(matrix.shape[-2]), float(matrix.shape[-1])


def cubes(call: OpCall, _flops: float) -> tuple[float, float]:
    """Rows x columns x the shorter of both of each matrix, and matrices."""
    matrices, m, n = _matrix(call)
    return matrices * m * n * min(m, n), matrices


def solves(call: OpCall, _flops: float) -> tuple[float, float]:
    """Unknowns x unknowns x right-hand sides of each system, and systems."""
    square = next((t for t in call.inputs if len(t.shape) > 1 and t.shape[-1] == t.shape[-2]), None)
    out = max(call.outputs, key=lambda t: t.numel, default=None)
    if square is None or out is None:
        return cubes(call, 0.0)
    n = square.shape[-1]
    return float(out.numel) * n, max(math.prod(out.shape[:-2]), 1.0)


def _sets(call: OpCall) -> tuple[float, float, float]:
    """(Pairs of vectors, elements of a vector, pairs of one batch's first set) of distances."""
    a, *others = [t for t in call.inputs if len(t.shape) > 1]
    if "pdist" in call.op:
        a = max((a, *others), key=lambda t: t.numel) if "backward" in call.op else a
        n = a.shape[-2]
        return n * (n - 1) / 2.0, float(a.shape[-1]), float(n)
    if "backward" in call.op:
        a, *others = others
    b = others[0]
    return float(math.prod(a.shape[:-1]) * b.shape[-2]), float(a.shape[-1]), float(max(a.shape[-2], b.shape[-2]))


def pairs(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements of the vectors of all pairs, and pairs."""
    pair, inner, _ = _sets(call)
    return pair * inner, pair


#: Vectors from which on Euclidean distances are a product of matrices (``cdist_impl`` in ATen/native/Distance.cpp).
BY_PRODUCT = 25


def by_product(call: OpCall) -> bool:
    """Whether distances are computed by a product: Euclidean ones of many vectors, unless that is forbidden."""
    if call.op != "aten::_cdist_forward" or call.args[:1] != (2.0,):
        return False
    mode = call.args[1] if len(call.args) > 1 else None
    return mode == 1 or (mode in (None, 0) and _sets(call)[2] > BY_PRODUCT)


def looked_up(call: OpCall, _flops: float) -> tuple[float, float]:
    """Queries x log2 of the table that each is looked up in."""
    first, second = (*call.inputs, *call.inputs)[:2]
    table, queries = (second, first) if call.op == "aten::bucketize" else (first, second)
    length = table.shape[-1] if table.shape else 1
    return _numel(call.outputs or (queries,)) * math.log2(2.0 + length), 0.0


def members(call: OpCall, _flops: float) -> tuple[float, float]:
    """Comparisons of ``isin``: each with each of a few, else a sort of both (ATen/native/TensorCompare.cpp)."""
    some = [float(t.numel) for t in call.inputs]
    tested, among = (*some, 1.0, 1.0)[:2]
    if among < 10.0 * tested**0.145:
        return tested * among, 0.0
    both = tested + among
    return both * math.log2(2.0 + both), 0.0


def windows(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements of all windows of pooling, and windows; the larger side where windows tile it."""
    backward = call.op.endswith("backward")
    pooled = call.inputs[0] if backward else call.outputs[0]
    size = call.args[0] if call.args and isinstance(call.args[0], tuple) else ()
    if size and "adaptive" not in call.op:
        return float(pooled.numel * math.prod(n for n in size if isinstance(n, int))), float(pooled.numel)
    return elements(call, 0.0)[0], float(pooled.numel)


def interpolated(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements of the forward's result, which each take a few taps of the image."""
    if call.op.startswith("aten::grid_sampler") and call.op.endswith("backward"):
        return float(call.inputs[0].numel), 0.0
    return elements(call, 0.0)


def columns(call: OpCall, _flops: float) -> tuple[float, float]:
    """Elements of the unfolded windows, and images."""
    return elements(call, 0.0)[0], float(call.inputs[0].shape[0] if len(call.inputs[0].shape) > 2 else 1)


def aligned(call: OpCall, _flops: float) -> tuple[float, float]:
    """States of a CTC loss: time steps x (2 x target + 1) of each sequence, and elements of the log-probabilities."""
    states = max((t.numel for t in (*call.outputs, *call.inputs) if len(t.shape) == 3), default=0)
    return float(states), 0.0


def trilinear(call: OpCall, _flops: float) -> tuple[float, float]:
    """Products of three: all dimensions of the three operands, each expanded by those it lacks."""
    sizes: dict[int, int] = {}
    for operand, lacking in zip(call.inputs, call.args, strict=False):
        own = iter(operand.shape)
        missing = lacking if isinstance(lacking, tuple) else ()
        for d in range(len(operand.shape) + len(missing)):
            sizes[d] = max(sizes.get(d, 1), 1 if d in missing else next(own, 1))
    return float(math.prod(sizes.values())), 1.0


def drawn(call: OpCall, _flops: float) -> tuple[float, float]:
    """Probabilities of a draw from categories, and numbers that are drawn."""
    return elements(call, 0.0)[0], _numel(call.outputs)


# Kernels in sequence. Their numbers are fitted to queued calls of an H200, in steps of 2.5 us
# (calibration/records/nvidia-h200-16-core/single_ops.jsonl.xz). A kernel whose threads wait for each other column by
# column counts as one for each wait.
def _batch_and_side(call: OpCall) -> tuple[float, float]:
    matrices, m, n = _matrix(call)
    return matrices, min(m, n)


def cholesky(call: OpCall) -> float:
    """Batched by cuSOLVER and MAGMA."""
    return 15.0 + 0.16 * _batch_and_side(call)[1]


def lu(call: OpCall) -> float:
    """Batched where matrices are small; a few times as long for a batch of large ones."""
    matrices, n = _batch_and_side(call)
    return (15.0 + 0.72 * n) * (min(matrices, 4.0) if n > SMALL_MATRIX else 1.0)


def lu_and_solve(call: OpCall) -> float:
    """A factorisation, and two triangular solves."""
    return 1.3 * lu(call) + 15.0


def triangular(call: OpCall) -> float:
    """One panel after the other."""
    return 12.0 + 0.08 * _batch_and_side(call)[1]


def two_triangular(call: OpCall) -> float:
    """Forward and back."""
    return 2.0 * triangular(call)


def qr(call: OpCall) -> float:
    """One matrix after the other, column by column (``geqrf`` and ``orgqr`` in a loop over the batch)."""
    matrices, n = _batch_and_side(call)
    return matrices * (18.0 + 1.5 * n * n / (n + 64.0))


def reflectors(call: OpCall) -> float:
    """Products of reflectors, one matrix after the other."""
    matrices, n = _batch_and_side(call)
    return matrices * (8.0 + 0.3 * n)


def least_squares(call: OpCall) -> float:
    """A QR of a tall matrix, and a solve."""
    matrices, n = _batch_and_side(call)
    return matrices * (20.0 + 2.3 * n)


def svd(call: OpCall) -> float:
    """Batched Jacobi sweeps of small matrices, else a matrix at a time."""
    matrices, n = _batch_and_side(call)
    if n <= SMALL_MATRIX:
        return 150.0 if matrices > 1.0 else 40.0 + 4.0 * n
    return matrices * (9.0 * n + 0.0135 * n * n)


def eigh(call: OpCall) -> float:
    """Batched Jacobi sweeps of small matrices, else a matrix at a time: sweeps, or a tridiagonal form beyond 512."""
    matrices, n = _batch_and_side(call)
    if n <= SMALL_MATRIX:
        return 20.0 + 3.0 * n
    return matrices * (8.0 if n <= 512.0 else 4.0) * n


def eig(call: OpCall) -> float:
    """A matrix at a time, column by column."""
    matrices, n = _batch_and_side(call)
    return matrices * (30.0 * n + 0.065 * n * n)


def walked(call: OpCall) -> float:
    """Where one dimension is scanned that is not the innermost, a thread walks it; else a block does the row."""
    rank = len(call.inputs[0].shape) if call.inputs else 0
    return 1.0 + 0.09 * row_of(call) if rank > 1 and dimension(call) != rank - 1 else 2.0


def by_one_block(call: OpCall) -> float:
    """One block goes through a row several times. All elements as one row are sorted by all blocks."""
    return 16.0 if call.op in _WHOLE_WITHOUT and not call.args else 1.0 + row_of(call) / 900.0


def in_turns(call: OpCall) -> float:
    """A thread for each position of the result goes through images and channels."""
    shape = (call.inputs or call.outputs)[0].shape
    return 1.0 + 0.1 * math.prod(shape[:2])


def by_image(call: OpCall) -> float:
    """A kernel for each image."""
    return 1.0 + columns(call, 0.0)[1]


def time_steps(call: OpCall) -> float:
    """One time step of a CTC loss after the other."""
    steps = max((t.shape[0] for t in call.inputs if len(t.shape) == 3), default=1)
    return (60.0 if call.op.endswith("backward") else 10.0) + 0.35 * steps


def recurrent(call: OpCall) -> float:
    """One time step after the other in every layer and direction; the tracer puts their number last."""
    length = call.args[-1] if call.args and isinstance(call.args[-1], int) else 1
    matrices = sum(len(t.shape) == 2 for t in call.inputs)
    return float(max(length, 1) * max(matrices // 2, 1))


def unrolled(call: OpCall) -> float:
    """Three kernels for each output of a bilinear layer."""
    dim = call.args[-1] if call.args and type(call.args[-1]) is int else 0
    sizes = [t.shape[dim] for t in call.inputs if len(t.shape) > dim]
    return 2.0 + 3.0 * max(sizes, default=1)


def dimensions(call: OpCall) -> float:
    """A pass for each dimension that is transformed, and one before."""
    dims = next((a for a in call.args if isinstance(a, tuple)), (0,))
    return 1.0 + len(dims)


def per_operand(call: OpCall) -> float:
    """A kernel for each operand or result."""
    return float(max(len(call.inputs), len(call.outputs)))


def projected(call: OpCall, _flops: float) -> tuple[float, float]:
    """Rows x width x classes of a layer and its loss in one."""
    rows_, weight = call.inputs[:2]
    return float(rows_.numel * weight.shape[0]), 0.0


class Quantized(NamedTuple):
    """What a layer of 8-bit weights does.

    Attributes:
        products: multiply-adds.
        numbers: activations that are quantized, and results that are scaled.
        gated: numbers that pass through the gates of recurrent layers, in float32.
        packed: elements of packed weights that are no operands of the call.
        steps: time steps of all layers, each a product of the input and one of the state; 0 of other layers.
        turns: times that all weights are read: time steps, or once.
    """

    products: float
    numbers: float
    gated: float = 0.0
    packed: float = 0.0
    steps: float = 0.0
    turns: float = 1.0


#: Gates of a recurrent layer by what its op's name holds.
_GATES = {"lstm": 4.0, "gru": 3.0, "rnn_tanh": 1.0, "rnn_relu": 1.0}


def quantized(call: OpCall) -> Quantized:
    """What a call of a quantized linear layer, convolution or recurrent layer does, by its operands and results.

    Raises IndexError where these are not such a layer's.
    """
    data, result = call.inputs[0], call.outputs[0]
    gates = next((n for name, n in _GATES.items() if name in call.op), 0.0)
    if gates:
        return _quantized_recurrent(call, gates)
    numbers = float(data.numel + result.numel)
    if "conv" in call.op:
        walked = data if "transpose" in call.op else result
        return Quantized(float(walked.numel * math.prod(call.inputs[1].shape[1:])), numbers)
    width = result.shape[-1]
    return Quantized(float(data.numel * width), numbers, packed=float(data.shape[-1] * width))


def _quantized_recurrent(call: OpCall, gates: float) -> Quantized:
    data, result = call.inputs[0], call.outputs[0]
    # Of packed sequences, the sizes of the batches come before the state.
    state = next((t for t in call.inputs[1:] if t.dtype == data.dtype), data)
    width, hidden = data.shape[-1], state.shape[-1]
    rows = data.numel / max(width, 1)
    stacked = directions = turns = 1.0
    if "_cell" not in call.op:
        stacked, directions = float(state.shape[0]), result.shape[-1] / hidden
        turns = max(rows / state.shape[1], 1.0)
    # The input and the state of every layer and direction; layers but the first read the states of those before.
    read = directions * width + (stacked - directions) * directions * hidden + stacked * hidden
    made = gates * hidden * stacked
    weights = gates * hidden * read
    return Quantized(rows * weights, rows * (read + 2.0 * made), rows * made, weights, turns * stacked, turns)


#: Cycles of a core that such layers take besides their products, in FBGEMM: for each number that is quantized or
#: scaled, each number of a gate, each time step, and each call, whose packed weights Python hands over.
_A_NUMBER, _A_GATE, _A_STEP, _A_CALL = 1.25, 7.0, 45e3, 50e3
#: The same of convolutions, in oneDNN, and of numbers that are quantized or read back alone.
_A_NUMBER_OF_IMAGES, _A_CONVOLUTION, _A_NUMBER_ALONE = 0.4, 1e5, 0.5


def quantized_products(call: OpCall, _flops: float) -> tuple[float, float]:
    """Multiply-adds, and cycles of all else."""
    does = quantized(call)
    if "conv" in call.op:
        return does.products, _A_NUMBER_OF_IMAGES * does.numbers + _A_CONVOLUTION
    return does.products, _A_NUMBER * does.numbers + _A_GATE * does.gated + _A_STEP * does.steps + _A_CALL


def quantized_numbers(call: OpCall, _flops: float) -> tuple[float, float]:
    """No multiply-adds, and cycles."""
    return 0.0, _A_NUMBER_ALONE * elements(call, 0.0)[0]
