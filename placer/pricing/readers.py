"""Reads the features of one op call: its arithmetic, and the sizes and flags its family is compared by.

Every reader gives (FLOPs, sizes, flags) in the order ``operators.FAMILIES`` names them. The functions of a ``Work`` are
amounts: what else than FLOPs and bytes the time of such an op is proportional to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from placer.pricing import parameter_updates
from placer.pricing.loops import Loop, innermost
from placer.tracing import OpCall, TensorSpec

if TYPE_CHECKING:
    from placer.pricing.operators import Work


#: float32 numbers in a vector register of AVX-512, and channels in a block of oneDNN's layouts.
REGISTER = 16


def operand_bytes(call: OpCall) -> float:
    """Bytes that all operands and results move, each once."""
    return float(sum(t.touched_bytes for t in call.inputs) + sum(t.touched_bytes for t in call.outputs))


def repeats(call: OpCall) -> bool:
    """Whether an operand stands for more elements than it has: kernels copy it first, or walk it element by element.

    The gradient of a sum is one: a single number, expanded to the shape of what was summed.
    """
    return any(not _is_index(t) and 0 in t.stride and 1 < t.numel > t.stored_bytes // t.item_bytes for t in call.inputs)


def largest(specs: tuple[TensorSpec, ...]) -> int:
    """Elements of the largest tensor; 0 of none."""
    return max((t.numel for t in specs), default=0)


def matmul(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """2 x batch x m x n x k; batch, m, n, k, elements of operands and product; operands transposed, one row or column.

    One row or column runs in other kernels, and how thin the product is tells how well any of them does. Rows of the
    product that end within a vector register take some tenth longer (``ragged``), however little of it they miss.
    """
    # addmm, baddbmm and addmv carry the bias first.
    a, b = call.inputs[-2:]
    batch = a.shape[0] if len(a.shape) == 3 else 1
    m = a.shape[-2] if len(a.shape) > 1 else 1
    k = a.shape[-1] if a.shape else 1
    n = b.shape[-1] if len(b.shape) > 1 else 1
    flags = (float(_is_transposed(a)), float(_is_transposed(b)), float(m == 1), float(n == 1), _ragged(n))
    elements = (batch * m * k, batch * k * n, batch * m * n)
    return 2.0 * batch * m * n * k, (batch, m, n, k, *elements, min(m, n, k)), flags


def _ragged(*sizes: int) -> float:
    """1.0 where one of these is no multiple of a vector register; 1, which has kernels of its own, does not count."""
    return float(any(size % REGISTER for size in sizes if size > 1))


def _is_transposed(spec: TensorSpec) -> bool:
    return len(spec.shape) > 1 and spec.stride[-1] != 1 and spec.shape[-1] != 1


def _flag(call: OpCall) -> bool:
    """Whether an argument is True: ``transposed`` of a convolution, ``training`` of a normalization; 1 is not."""
    return any(argument is True for argument in call.args)


def _convolution_geometry(call: OpCall, image: TensorSpec, weight: TensorSpec, out: TensorSpec) -> tuple[float, ...]:
    transposed = _flag(call)
    kernel = math.prod(weight.shape[2:])
    if transposed:
        groups = max(out.shape[1] // max(weight.shape[1], 1), 1)
        spatial = math.prod(image.shape[2:])
    else:
        groups = max(image.shape[1] // max(weight.shape[1], 1), 1)
        spatial = math.prod(out.shape[2:])
    cin, cout = image.shape[1] / groups, out.shape[1] / groups
    return image.shape[0], cin, cout, groups, kernel, spatial, math.prod(image.shape[2:]), weight.numel, out.numel


def _convolution_flags(call: OpCall, image: TensorSpec, weight: TensorSpec, out: TensorSpec) -> tuple[float, ...]:
    dims = len(weight.shape) - 2
    strided, dilated = float(not image.contiguous), float(_is_dilated(call))
    ragged = _ragged(image.shape[1], out.shape[1])
    return float(dims == 1), float(dims == 3), float(_flag(call)), strided, dilated, ragged


def _is_dilated(call: OpCall) -> bool:
    """Dilation is the third list among a convolution's arguments: stride and padding stand before it.

    A backward has the bias's size, and all may have other lists, in front: what counts is the distance to the flag.
    """
    position = next((i for i, argument in enumerate(call.args) if isinstance(argument, bool)), 0)
    dilation = call.args[position - 1] if position else ()
    return isinstance(dilation, tuple) and any(step != 1 for step in dilation)


def convolution(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """2 x batch x in x out x kernel x positions, with the channels of one group."""
    image, weight, out = *call.inputs[:2], call.outputs[0]
    geometry = _convolution_geometry(call, image, weight, out)
    n, cin, cout, groups, kernel, spatial = geometry[:6]
    return 2.0 * n * cin * cout * groups * kernel * spatial, geometry, _convolution_flags(call, image, weight, out)


def convolution_backward(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """The forward's FLOPs for the weight's gradient, and again for the input's where it is asked for."""
    grad, image, weight = call.inputs[:3]
    geometry = _convolution_geometry(call, image, weight, grad)
    n, cin, cout, groups, kernel, spatial = geometry[:6]
    to_input = any(o.shape == image.shape for o in call.outputs)
    flops = (4.0 if to_input else 2.0) * n * cin * cout * groups * kernel * spatial
    return flops, geometry, (*_convolution_flags(call, image, weight, grad), float(to_input))


#: Arithmetic per element of the ops that are not a single instruction (polynomial or table evaluations, in FLOPs).
TRANSCENDENTAL = {
    "exp": 10, "log": 10, "tanh": 20, "sigmoid": 15, "gelu": 25, "silu": 18, "mish": 40, "softplus": 25, "erf": 20,
    "sin": 15, "cos": 15, "pow": 20, "elu": 15, "log1p": 15, "expm1": 15, "tan": 25, "atan2": 30, "log_sigmoid": 25,
    "gelu_backward": 35, "mish_backward": 50, "silu_backward": 25, "softplus_backward": 25, "elu_backward": 15,
    "log_sigmoid_forward": 25, "log_sigmoid_backward": 25, "hardswish": 4, "logit": 20, "lgamma": 60, "digamma": 60,
}  # fmt: skip
#: FLOPs per element from which on arithmetic takes longer than memory, whatever cache the element comes from.
EVALUATED = 10


def evaluates_function(work: Work) -> bool:
    """Whether an elementwise op is a polynomial or a table rather than a single instruction."""
    return work.flops >= EVALUATED * work.sizes[0] > 0


def elementwise(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """One FLOP per element, more for functions that are not one instruction; the innermost loops over the operands."""
    out = max(largest(call.outputs), largest(call.inputs) if call.in_place else 0)
    name = call.op.removeprefix("aten::").rstrip("_")
    broadcast = any(t.numel < out or 0 in t.stride for t in call.inputs if t.numel > 1)
    written = call.inputs[:1] if call.in_place else call.outputs[:1]
    loop = innermost(written[0], call.inputs) if written else Loop(1, 1, strided=False)
    flops = float(TRANSCENDENTAL.get(name, 1)) * out
    flags = float(loop.strided), float(broadcast), float(call.in_place)
    most = max(out, 1)
    return flops, (out, operand_bytes(call), min(loop.length, most), min(loop.block, most)), flags


#: Ops of several operands that compute in one dtype (TensorIterator's ``promote_inputs_to_common_dtype``).
_PROMOTING = {
    f"aten::{name}"
    for name in (
        "add", "sub", "rsub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "pow", "atan2", "remainder", "fmod",
        "addcmul", "addcdiv", "eq", "ne", "lt", "le", "gt", "ge",
    )
}  # fmt: skip


def converted(call: OpCall) -> str:
    """The dtype of an operand that is first copied into another, such as that of a mask that is multiplied with.

    "" where there is none. On the CPU the copy costs several times what the op itself does; single numbers are
    converted where they stand.
    """
    if len(call.inputs) < 2 or call.op.rstrip("_") not in _PROMOTING:
        return ""
    dtypes = {t.dtype: t.item_bytes for t in call.inputs if t.shape}
    common = max(dtypes, key=lambda name: ("float" in name, dtypes[name]), default="")
    return next((t.dtype for t in call.inputs if t.shape and t.dtype != common), "")


def reduction(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """One FLOP per element read; elements in and out; whether the innermost dimension survives."""
    source = max(call.inputs, key=lambda t: t.numel, default=None)
    if source is None:
        return 0.0, (0, 0), (0.0, 0.0)
    out = largest(call.outputs)
    # The innermost dimension survives when the reduction runs over an outer one: another access pattern.
    kept = bool(call.outputs) and bool(source.shape) and bool(call.outputs[0].shape)
    inner_survives = kept and out > 1 and call.outputs[0].shape[-1] == source.shape[-1] > 1
    return float(source.numel), (source.numel, out), (float(inner_survives), float(not source.contiguous))


def rows(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """12 FLOPs per element; elements and the row's length: softmax, sorting, scans."""
    source = max(call.inputs, key=lambda t: t.numel)
    inner = source.shape[-1] if source.shape else 1
    return 12.0 * source.numel, (source.numel, inner), (float(not source.contiguous),)


def normalization(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """8 FLOPs per element; elements and channels; whether statistics are taken."""
    source = max(call.inputs, key=lambda t: t.numel)
    channels = max((t.numel for t in call.inputs if len(t.shape) == 1), default=1)
    return 8.0 * source.numel, (source.numel, channels), (float(not source.contiguous), float(_flag(call)))


def pooling(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """One FLOP per element of the larger side; both sides, and how many elements share a result."""
    large = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
    small = call.outputs[0] if not call.op.endswith("backward") else call.inputs[0]
    window = max(large.numel / max(small.numel, 1), 1.0)
    return float(large.numel), (large.numel, small.numel, window), (float(not large.contiguous),)


#: Ops that read rows of a table; the others write them.
_READS_ROWS = frozenset(
    f"aten::{name}"
    for name in ("embedding", "index_select", "gather", "index", "take", "masked_select", "nonzero", "embedding_bag",
                 "_embedding_bag", "_embedding_bag_forward_only")
)  # fmt: skip


def _indexed(call: OpCall) -> tuple[float, float, float]:
    """(elements moved, elements of the table, distinct indices) of an op that reads or writes rows by number."""
    index = max((t for t in call.inputs if _is_index(t)), key=lambda t: t.numel, default=None)
    indices = index.stored_bytes / index.item_bytes if index is not None else 1.0
    values = [t.numel for t in call.inputs if not _is_index(t)]
    out = largest(call.outputs)
    if call.op in _READS_ROWS:
        return float(out), float(max(values, default=0)), indices
    written = max(values[1:], default=values[0] if values else 0)
    return float(written), float(out), indices


#: Ops whose first argument is the dimension that the numbers belong to.
_ALONG = frozenset(
    f"aten::{name}{in_place}"
    for name in ("index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy",
                 "index_fill")
    for in_place in ("", "_")
)  # fmt: skip


def _is_index(spec: TensorSpec) -> bool:
    return spec.dtype in ("int64", "int32", "bool", "uint8")


#: Elements from which on torch moves and adds whole rows; of narrower ones each element is handled by itself
#: (``can_use_expanded_index_path`` in ATen/native/TensorAdvancedIndexing.cpp).
WIDE_ROW = 16


def indexing(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """No FLOPs; elements moved, the table, distinct indices, elements per index; how rows are moved.

    Where a reduction leaves out what was there before, all that it writes to is overwritten first.
    """
    moved, table, indices = _indexed(call)
    # One index per row, broadcast over its elements: kernels move whole rows then.
    expanded = any(0 in t.stride for t in call.inputs if _is_index(t))
    width = max(moved / max(indices, 1.0), 1.0)
    wide = width >= WIDE_ROW and _moves_rows(call)
    renewed = "scatter_reduce" in call.op and call.args[-1:] == (False,)
    return 0.0, (moved, table, indices, width), (float(call.in_place), float(expanded), float(wide), float(renewed))


def _moves_rows(call: OpCall) -> bool:
    """Whether the first dimension is indexed, so that what belongs to one index lies side by side."""
    table, *others = call.inputs
    if call.op == "aten::index":
        picked = max((t.shape for t in others), key=len, default=())
        return call.outputs[0].shape[: len(picked)] == picked
    dimension = call.args[0] if call.args and type(call.args[0]) is int else 0
    return not table.shape or call.op not in _ALONG or dimension % len(table.shape) == 0


def indexing_bytes(call: OpCall) -> float:
    """Rows read and written (read twice where they are added up), the indices, and a table that is made or copied."""
    moved, table, _ = _indexed(call)
    passes = 2.0 if call.op in _READS_ROWS else 3.0
    made = 0.0 if call.op in _READS_ROWS or call.in_place else 8.0 * table
    return 4.0 * passes * moved + made + sum(t.stored_bytes for t in call.inputs if _is_index(t))


def attention(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """2 x batch x length x source x (width + output width), 5 instead of 2 for the gradient."""
    q, k, v = [t for t in call.inputs if len(t.shape) >= 3][:3]
    batch = math.prod(q.shape[:-2])
    length, width = q.shape[-2:]
    source, out_width = k.shape[-2], v.shape[-1]
    backward = call.op.endswith("_backward")
    flops = (5.0 if backward else 2.0) * batch * length * source * (width + out_width)
    masked = any(len(t.shape) >= 2 and t.shape[-2:] == (length, source) for t in call.inputs[3:])
    causal = bool(call.args) and call.args[0] is True
    # With dropout no fused kernel serves on the CPU: the scores are written out, masked and read again.
    dropped = len(call.args) > 2 and isinstance(call.args[2], float) and call.args[2] > 0.0
    return flops, (batch, length, source, width), (float(causal), float(masked), float(dropped))


def encoder(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """2 x tokens x weights for the layer's products, 4 x tokens x length x width for its attention."""
    source = call.inputs[0]
    tokens, width = max(source.numel // source.shape[-1], 1), source.shape[-1]
    length = source.shape[-2] if len(source.shape) > 2 else tokens
    # Weights only: a mask is as two-dimensional, but no side of it is the width.
    weights = sum(t.numel for t in call.inputs[1:] if len(t.shape) == 2 and width in t.shape)
    heads = call.args[1] if len(call.args) > 1 and type(call.args[1]) is int else 1
    return 2.0 * tokens * weights + 4.0 * tokens * length * width, (tokens, length, width, weights, heads), ()


def recurrent(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """2 x rows x all weights, twice that for the gradient.

    Time steps, batch, widths, stacked layers, elements of one state and of all weights.
    """
    sequence = call.inputs[0]
    cell = call.op.removesuffix("_backward").endswith("_cell")
    rows = max(sequence.numel // max(sequence.shape[-1], 1), 1)
    # A cell's state is as two-dimensional as its weights, but stands before them.
    states = (2 if "lstm" in call.op else 1) if cell else 0
    matrices = [t for t in call.inputs[1 + states :] if len(t.shape) == 2]
    # Behind a cell's two weights stand the gradients of a backward; a layer's packed sequence is flat like its weights.
    weights = matrices[:2] if cell else [t for t in matrices if t.shape != sequence.shape]
    hidden = weights[1].shape[-1] if len(weights) > 1 else sequence.shape[-1]
    length = 1 if cell else _time_steps(call)
    stacked = max(len(weights) // 2, 1)  # layers x directions
    backward = call.op.endswith("_backward")
    flops = 2.0 * (2.0 if backward else 1.0) * rows * sum(w.numel for w in weights)
    batch = max(rows // length, 1)
    elements = batch * hidden, sum(w.numel for w in weights)
    return flops, (length, batch, sequence.shape[-1], hidden, stacked, *elements), (float(backward),)


def _time_steps(call: OpCall) -> int:
    """The tracer puts the number of time steps last."""
    last = call.args[-1] if call.args else 1
    return max(last, 1) if isinstance(last, int) else 1


def streamed_bytes(work: Work) -> float:
    """Weights of all layers, read anew in every time step."""
    return 4.0 * work.sizes[0] * work.sizes[6]


def step_padding_flops(work: Work) -> float:
    """Arithmetic on rows that only fill up the tile of one time step's product."""
    return work.flops * (_filled(work.sizes[1]) - 1.0)


def width_padding_flops(work: Work) -> float:
    """Arithmetic on numbers that only fill up the last vector register of a state's row."""
    return work.flops * (_filled(work.sizes[3]) - 1.0)


def left_over(work: Work) -> float:
    """Numbers of a gate beyond the pairs of registers that its rows fill: their exponentials are taken one by one.

    A gate is a part of the rows of one product, so each of its rows is a loop of its own (see ``loops.py``). Layers of
    LSTMs are oneDNN's, which has none of that; plain ones have no gates; and gradients take no exponentials.
    """
    if work.op == "aten::lstm" or "rnn" in work.op or work.op.endswith("_backward"):
        return 0.0
    length, batch, _, hidden, stacked = work.sizes[:5]
    return length * stacked * batch * (hidden % (2 * REGISTER))


def linear_algebra(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """2 x batch x rows x columns x inner: the cube of a square matrix, up to a constant each op has of its own.

    Matrices of a batch are factorised one after the other. Distances are rows x columns of them, over ``inner`` each.
    """
    if "dist" in call.op:
        backward = call.op.endswith("_backward")
        a, b = call.inputs[1:3] if backward else call.inputs[:2]
        batch, rows, columns, inner = math.prod(a.shape[:-2]), a.shape[-2], b.shape[-2], a.shape[-1]
    else:
        matrix = max((t for t in call.inputs if len(t.shape) > 1), key=lambda t: t.numel)
        batch, (rows, columns) = math.prod(matrix.shape[:-2]), matrix.shape[-2:]
        inner = min(rows, columns)
    return 2.0 * batch * rows * columns * inner, (batch, rows, columns, inner), ()


def fourier(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """5 x elements x log2(length) (Cooley & Tukey, 1965); elements and points of one transform."""
    signal = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
    dims = next((argument for argument in call.args if isinstance(argument, tuple)), (-1,))
    length = math.prod(signal.shape[d] for d in dims if isinstance(d, int)) or 1
    return 5.0 * signal.numel * math.log2(2.0 + length), (signal.numel, length), (float(not signal.contiguous),)


def optimizer(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """12 FLOPs per element of the parameter; elements, one tensor (the step knows of the others); settings."""
    settings = parameter_updates.settings(call)
    flags = tuple(float(bool(settings.get(name))) for name in ("momentum", "weight_decay", "fused"))
    return 12.0 * call.inputs[0].numel, (call.inputs[0].numel, 1), flags


def other(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """One FLOP per element of the largest tensor: too few for most, and a floor all the same."""
    return float(largest((*call.inputs, *call.outputs))), (largest(call.inputs), largest(call.outputs)), ()


def nothing(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """No work and no features: a view."""
    return 0.0, (), ()


def filling_flops(work: Work) -> float:
    """Arithmetic on channels that are only there to fill vector registers (oneDNN's blocked layouts).

    An image of fewer channels than one register holds is read as it lies, by kernels of their own (oneDNN's
    ``is_1stconv``); none write one so: its gradient is filled up like any.
    """
    cin, cout, groups = work.sizes[1:4]
    if groups > 1:
        return 0.0
    to_input = work.family == "convolution_backward" and work.flags[6] > 0.0
    read = 1.0 if cin < REGISTER and not to_input else _filled(cin)
    return work.flops * (read * _filled(cout) - 1.0)


def padding_flops(work: Work, _: int) -> float:
    """The same as it was taken for before: an image of few channels filled up, too, wherever it is read."""
    cin, cout, groups = work.sizes[1:4]
    return 0.0 if groups > 1 else work.flops * (_filled(cin) * _filled(cout) - 1.0)


def convolution_variant(work: Work) -> str:
    """``depthwise`` where every group has a channel of its own: other kernels run than for all other convolutions.

    For the gradients of dilated ones there is no fast kernel: they are another variant.
    """
    _, cin, _, groups, kernel = work.sizes[:5]
    if groups == 1 or cin > 1:
        return ""
    dilated = work.flags[4] > 0.0 and kernel > 1
    return "dilated_depthwise" if dilated else "depthwise"


def product_padding_flops(work: Work) -> float:
    """The same of a matrix product, whose kernels work on tiles of the result."""
    m, n = work.sizes[1:3]
    return work.flops * (_filled(m) * _filled(n) - 1.0)


def product_rows(work: Work) -> float:
    """Rows of all products' results: each is begun anew, which of thousands of short ones is most of the time."""
    batch, m = work.sizes[:2]
    return batch * m


def product_depth(work: Work) -> float:
    """Numbers that are added up to one of the result, where rows lie across: a weight's gradient over a large batch.

    Of a small result they are all there is to be gone through, in steps that no core's vector registers are filled by.
    """
    batch, _, _, k = work.sizes[:4]
    return batch * k if work.flags[0] else 0.0


def _filled(size: float) -> float:
    """How much larger a dimension is once it is rounded up to whole vector registers."""
    return math.ceil(size / REGISTER) * REGISTER / size if size > 0 else 1.0


def unfolded_bytes(work: Work) -> float:
    """Memory of the kernel-sized patches around every position, which kernels that unfold the image write and read."""
    n, cin, _, groups, kernel, positions = work.sizes[:6]
    return 4.0 * n * cin * groups * kernel * positions


def activations(work: Work) -> float:
    """Elements of image and result: laid out anew and written to fresh memory, they cost more than weights do."""
    n, cin, _, groups, _, _, input_positions, _, result = work.sizes[:9]
    return n * cin * groups * input_positions + result


#: What a convolution's time is proportional to besides; and what only profiles fitted before know of it.
CONVOLVED: Mapping[str, Callable[[Work], float]] = {
    "filling_flops": filling_flops,
    "unfolded_bytes": unfolded_bytes,
    "activations": activations,
}
CONVOLVED_EARLIER: Mapping[str, Callable[[Work, int], float]] = {"padding_flops": padding_flops}

#: What the innermost loops cost beside their arithmetic: beginning anew, one or both, and elements that lie apart.
LOOPS: Mapping[str, Callable[[Work], float]] = {
    "restarts": lambda w: max(w.sizes[0] / max(w.sizes[2], 1.0) - 1.0, 0.0),
    "blocks": lambda w: max(w.sizes[0] / max(w.sizes[3], 1.0) - 1.0, 0.0),
    "strided": lambda w: w.flags[0] * w.sizes[0],
}
