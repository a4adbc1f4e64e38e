"""Ops that multiply matrices, or solve and transform with them: nearly all of their time is arithmetic."""

from __future__ import annotations

import math

from placer.pricing.families.family import REGISTER, Family, Features, aten, cut, of_busiest, padded, ragged
from placer.pricing.work import Work, has_true_argument
from placer.tracing import OpCall, TensorSpec


def _read_matmul(call: OpCall) -> Features:
    """FLOPs: 2 x batch x m x n x k."""
    # addmm, baddbmm and addmv carry the bias first.
    a, b = call.inputs[-2:]
    batch = a.shape[0] if len(a.shape) == 3 else 1
    m = a.shape[-2] if len(a.shape) > 1 else 1
    k = a.shape[-1] if a.shape else 1
    n = b.shape[-1] if len(b.shape) > 1 else 1
    elements = (batch * m * k, batch * k * n, batch * m * n)
    flags = (float(_is_transposed(a)), float(_is_transposed(b)), float(m == 1), float(n == 1), ragged(n))
    return Features(2.0 * batch * m * n * k, (batch, m, n, k, *elements, min(m, n, k)), flags)


def _is_transposed(spec: TensorSpec) -> bool:
    return len(spec.shape) > 1 and spec.stride[-1] != 1 and spec.shape[-1] != 1


def _count_matmul(work: Work, _threads: int) -> dict[str, float]:
    batch, m, n, k = work.sizes[:4]
    a_transposed = work.flags[0]
    return {
        # Arithmetic on rows and columns that only pad the result's last tiles.
        "padding_flops": work.flops * (padded(m) * padded(n) - 1.0),
        # Each row of a result is started anew, which takes most of the time where thousands of them are short.
        "rows": batch * m,
        # Where the first operand is transposed, as in a weight's gradient over a large batch, the result is small, the
        # loop over k is nearly all the work, and its steps fill no core's vector registers.
        "depth": batch * k if a_transposed else 0.0,
        "further": batch - 1.0,
    }


MATMUL = Family(
    name="matmul",
    ops=aten("mm addmm bmm baddbmm mv addmv dot addbmm matmul linear _addmm_activation"),
    sizes={
        "batch": "products in the call",
        "m": "rows of the result",
        "n": "columns of the result",
        "k": "products that are added up to one number of the result",
        "left": "elements of the first operand",
        "right": "elements of the second operand",
        "product": "elements of the result",
        "narrowest": "the smallest of m, n and k: every kernel is less efficient on a thin product",
    },
    flags={
        "a_transposed": "the first operand is transposed",
        "b_transposed": "the second operand is transposed",
        "row": "m is 1, which has kernels of its own",
        "column": "n is 1, which has kernels of its own",
        "ragged": "rows of the result end within a vector register: a tenth slower, however few numbers are missing",
    },
    read=_read_matmul,
    cpu_amounts=("padding_flops", "rows", "depth", "further"),
    count=_count_matmul,
)

_CONVOLUTION_SIZES = {
    "batch": "images",
    "in_channels": "channels of the image in one group",
    "out_channels": "channels of the result in one group",
    "groups": "groups of channels",
    "kernel": "elements of the kernel's window",
    "positions": "places of the window: those of the result, or of the image where the convolution is transposed",
    "input_positions": "positions of the image",
    "weights": "elements of the weight",
    "result": "elements of the result",
}
_CONVOLUTION_FLAGS = {
    "one_d": "one spatial dimension",
    "three_d": "three spatial dimensions",
    "transposed": "a transposed convolution",
    "strided": "the image is not contiguous",
    "dilated": "the window has gaps",
    "ragged": "the channels of image or result fill no whole number of vector registers",
}


def _read_forward(call: OpCall) -> Features:
    """FLOPs: 2 x batch x in x out x groups x kernel x positions, with the channels of one group."""
    image, weight, out = *call.inputs[:2], call.outputs[0]
    sizes = _sizes(call, image, weight, out)
    n, cin, cout, groups, kernel, spatial = sizes[:6]
    return Features(2.0 * n * cin * cout * groups * kernel * spatial, sizes, _flags(call, image, weight, out))


def _read_backward(call: OpCall) -> Features:
    """FLOPs: the forward's for the weight's gradient, and again for the input's where it is asked for."""
    grad, image, weight = call.inputs[:3]
    sizes = _sizes(call, image, weight, grad)
    n, cin, cout, groups, kernel, spatial = sizes[:6]
    to_input = any(o.shape == image.shape for o in call.outputs)
    flops = (4.0 if to_input else 2.0) * n * cin * cout * groups * kernel * spatial
    return Features(flops, sizes, (*_flags(call, image, weight, grad), float(to_input)))


def _sizes(call: OpCall, image: TensorSpec, weight: TensorSpec, out: TensorSpec) -> tuple[float, ...]:
    kernel = math.prod(weight.shape[2:])
    if has_true_argument(call):  # transposed
        groups = max(out.shape[1] // max(weight.shape[1], 1), 1)
        spatial = math.prod(image.shape[2:])
    else:
        groups = max(image.shape[1] // max(weight.shape[1], 1), 1)
        spatial = math.prod(out.shape[2:])
    cin, cout = image.shape[1] / groups, out.shape[1] / groups
    return image.shape[0], cin, cout, groups, kernel, spatial, math.prod(image.shape[2:]), weight.numel, out.numel


def _flags(call: OpCall, image: TensorSpec, weight: TensorSpec, out: TensorSpec) -> tuple[float, ...]:
    dims = len(weight.shape) - 2
    transposed, strided, dilated = has_true_argument(call), not image.contiguous, _is_dilated(call)
    return (
        float(dims == 1), float(dims == 3), float(transposed), float(strided), float(dilated),
        ragged(image.shape[1], out.shape[1]),
    )  # fmt: skip


def _is_dilated(call: OpCall) -> bool:
    """Dilation is the list right before the flag ``transposed``, after stride and padding.

    Its position from the start varies: a backward has the bias's size first, and other lists may precede it.
    """
    position = next((i for i, argument in enumerate(call.args) if isinstance(argument, bool)), 0)
    dilation = call.args[position - 1] if position else ()
    return isinstance(dilation, tuple) and any(step != 1 for step in dilation)


def _count_convolution(work: Work, _threads: int) -> dict[str, float]:
    n, cin, cout, groups, kernel, positions, input_positions, _, result = work.sizes[:9]
    # oneDNN's blocked layouts pad channels to vector registers. An image of fewer channels than a register holds is
    # read without padding, by kernels of its own (``is_1stconv``). No kernel writes one so: its gradient is padded.
    to_input = work.family == "convolution_backward" and work.flags[6] > 0.0
    read = 1.0 if cin < REGISTER and not to_input else padded(cin)
    return {
        "filling_flops": work.flops * (read * padded(cout) - 1.0) if groups <= 1 else 0.0,
        # Kernels that unfold the image write and read the window-sized patches around every position.
        "unfolded_bytes": 4.0 * n * cin * groups * kernel * positions,
        # Elements of image and result are laid out anew and written to fresh memory, and cost more than weights.
        "activations": n * cin * groups * input_positions + result,
    }


def _earlier_convolution(work: Work, _threads: int) -> dict[str, float]:
    """``filling_flops`` as earlier versions counted it: an image of few channels is padded wherever it is read."""
    cin, cout, groups = work.sizes[1:4]
    return {"padding_flops": 0.0 if groups > 1 else work.flops * (padded(cin) * padded(cout) - 1.0)}


def variant(work: Work) -> str:
    """The name of a group of shapes that run in kernels of their own, and are priced as another op; "" of most.

    ``depthwise`` are convolutions every group of which has one input channel. For the gradients of dilated ones there
    is no fast kernel: they are another variant.
    """
    if work.family not in ("convolution", "convolution_backward"):
        return ""
    _, cin, _, groups, kernel = work.sizes[:5]
    if groups == 1 or cin > 1:
        return ""
    dilated = work.flags[4] > 0.0 and kernel > 1
    return "dilated_depthwise" if dilated else "depthwise"


_CONVOLUTION_AMOUNTS = ("filling_flops", "unfolded_bytes", "activations")

CONVOLUTION = Family(
    name="convolution",
    ops=aten("convolution _convolution mkldnn_convolution cudnn_convolution conv2d conv1d conv3d"),
    sizes=_CONVOLUTION_SIZES,
    flags=_CONVOLUTION_FLAGS,
    read=_read_forward,
    cpu_amounts=_CONVOLUTION_AMOUNTS,
    count=_count_convolution,
    earlier=_earlier_convolution,
)
CONVOLUTION_BACKWARD = Family(
    name="convolution_backward",
    ops=aten("convolution_backward"),
    sizes=_CONVOLUTION_SIZES,
    flags={**_CONVOLUTION_FLAGS, "to_input": "the gradient of the image is asked for, besides that of the weight"},
    read=_read_backward,
    cpu_amounts=_CONVOLUTION_AMOUNTS,
    count=_count_convolution,
    earlier=_earlier_convolution,
)


def _read_attention(call: OpCall) -> Features:
    """FLOPs: 2 x batch x length x source x (width + output width), 5 instead of 2 for the gradient."""
    q, k, v = [t for t in call.inputs if len(t.shape) >= 3][:3]
    batch = math.prod(q.shape[:-2])
    length, width = q.shape[-2:]
    source, out_width = k.shape[-2], v.shape[-1]
    backward = call.op.endswith("_backward")
    flops = (5.0 if backward else 2.0) * batch * length * source * (width + out_width)
    masked = any(len(t.shape) >= 2 and t.shape[-2:] == (length, source) for t in call.inputs[3:])
    causal = bool(call.args) and call.args[0] is True
    dropped = len(call.args) > 2 and isinstance(call.args[2], float) and call.args[2] > 0.0
    return Features(flops, (batch, length, source, width), (float(causal), float(masked), float(dropped)))


def _count_attention(work: Work, _threads: int) -> dict[str, float]:
    batch, length, source = work.sizes[:3]
    scores = batch * length * source
    # With dropout no fused kernel serves on the CPU: scores are written out, masked and read again.
    return {"scores": scores, "rows": batch, "dropped_scores": work.flags[2] * scores}


ATTENTION = Family(
    name="attention",
    ops=aten("scaled_dot_product_attention scaled_dot_product_attention_backward"),
    sizes={
        "batch": "sequences x heads",
        "length": "queries of a sequence",
        "source": "keys of a sequence",
        "width": "elements of a query",
    },
    flags={
        "causal": "a query sees only the keys up to its own position",
        "masked": "a mask is added to the scores",
        "dropout": "scores are dropped at random",
    },
    read=_read_attention,
    amounts=("scores", "rows"),
    cpu_amounts=("dropped_scores",),
    count=_count_attention,
)


def _read_encoder(call: OpCall) -> Features:
    """FLOPs: 2 x tokens x weights for the layer's products, 4 x tokens x length x width for its attention."""
    source = call.inputs[0]
    tokens, width = max(source.numel // source.shape[-1], 1), source.shape[-1]
    length = source.shape[-2] if len(source.shape) > 2 else tokens
    # A mask is a matrix too, but neither of its sides is the width.
    weights = sum(t.numel for t in call.inputs[1:] if len(t.shape) == 2 and width in t.shape)
    heads = call.args[1] if len(call.args) > 1 and type(call.args[1]) is int else 1
    flops = 2.0 * tokens * weights + 4.0 * tokens * length * width
    return Features(flops, (tokens, length, width, weights, heads))


def _count_encoder(work: Work, _threads: int) -> dict[str, float]:
    tokens, length, width, _, heads = work.sizes[:5]
    return {"scores": tokens * length * heads, "activations": tokens * width}


ENCODER = Family(
    name="encoder",
    ops=aten("_transformer_encoder_layer_fwd _native_multi_head_attention"),
    sizes={
        "tokens": "tokens of all sequences",
        "length": "tokens of a sequence",
        "width": "elements of a token",
        "weights": "elements of all weight matrices",
        "heads": "heads of the attention",
    },
    read=_read_encoder,
    amounts=("scores", "activations"),
    count=_count_encoder,
)

#: Ops inside one time step of a layer.
OPS_IN_TIME_STEP = 8


def _read_recurrent(call: OpCall) -> Features:
    """FLOPs: 2 x rows x all weights, twice that for the gradient."""
    sequence = call.inputs[0]
    cell = call.op.removesuffix("_backward").endswith("_cell")
    rows = max(sequence.numel // max(sequence.shape[-1], 1), 1)
    # A cell's states are matrices like its weights, but come before them.
    states = (2 if "lstm" in call.op else 1) if cell else 0
    matrices = [t for t in call.inputs[1 + states :] if len(t.shape) == 2]
    # A backward of a cell has gradients after the two weights. A layer's packed sequence is a matrix like its weights.
    weights = matrices[:2] if cell else [t for t in matrices if t.shape != sequence.shape]
    hidden = weights[1].shape[-1] if len(weights) > 1 else sequence.shape[-1]
    length = 1 if cell else _length(call)
    stacked = max(len(weights) // 2, 1)
    backward = call.op.endswith("_backward")
    flops = 2.0 * (2.0 if backward else 1.0) * rows * sum(w.numel for w in weights)
    batch = max(rows // length, 1)
    elements = batch * hidden, sum(w.numel for w in weights)
    return Features(flops, (length, batch, sequence.shape[-1], hidden, stacked, *elements), (float(backward),))


def _length(call: OpCall) -> int:
    """The number of time steps, which the tracer puts last among the arguments."""
    last = call.args[-1] if call.args else 1
    return max(last, 1) if isinstance(last, int) else 1


def _count_recurrent(work: Work, threads: int) -> dict[str, float]:
    length, batch, _, hidden, stacked, _, weights = work.sizes[:7]
    steps = length * stacked
    gated = steps * batch * hidden
    # A gate is a part of the rows of one product, so each of its rows is a loop of its own, and numbers beyond whole
    # pairs of vector registers have their exponentials taken one by one. LSTM layers run in oneDNN, which has no such
    # rest; plain layers have no gates; and gradients take no exponentials.
    whole = work.op == "aten::lstm" or "rnn" in work.op or work.op.endswith("_backward")
    return {
        "steps": steps,
        "gated": gated,
        "streamed_bytes": 4.0 * length * weights,  # read again in every time step
        # Arithmetic that only pads a time step's last tile of rows, and the last vector register of a state's row.
        "padding_flops": work.flops * (padded(batch) - 1.0),
        "width_padding_flops": work.flops * (padded(hidden) - 1.0),
        "left_over": 0.0 if whole else steps * batch * (hidden % (2 * REGISTER)),
        **of_busiest(cut(batch * hidden), threads, loops=steps, gated=gated),
    }


def time_steps(work: Work) -> float:
    """Time steps of all layers of a recurrent op."""
    return work.sizes[0] * work.sizes[4]


def persistent(work: Work) -> bool:
    """Whether one kernel runs all time steps of a layer on a GPU, as its weights stay on the SMs.

    Those of small states do, and of larger ones in half precision (``use_rnn_persist_small_h`` and
    ``use_persist_common_heuristics`` in ATen/native/cudnn/RNN.cpp).
    """
    _, _, width, hidden, stacked = work.sizes[:5]
    plain = "rnn" in work.op
    small = (256 if plain else 128) if work.flags[0] else (384 if plain else 192)
    half = work.dtype.partition("+")[0] in ("float16", "bfloat16")
    wide = half and stacked == 1 and hidden <= 1024 and hidden % 128 == 0 and width % 128 == 0
    return hidden <= small or wide


def recurrent_launches(work: Work) -> float:
    """Kernels of a recurrent op on a GPU: some for each layer, and two for each time step where it is not persistent.

    Counted in the calibrations of an H100 and an H200, over 200 layers (calibration/records).
    """
    backward = work.flags[0] > 0.0
    if persistent(work):
        return (9.0 if backward else 3.0) * work.sizes[4]
    return 2.1 * time_steps(work) + (6.0 if backward else 1.0) * work.sizes[4]


RECURRENT = Family(
    name="recurrent",
    ops=aten(
        "lstm lstm_backward gru gru_backward rnn_tanh rnn_tanh_backward rnn_relu rnn_relu_backward lstm_cell "
        "lstm_cell_backward gru_cell gru_cell_backward rnn_tanh_cell rnn_tanh_cell_backward rnn_relu_cell "
        "rnn_relu_cell_backward"
    ),
    sizes={
        "length": "time steps; 1 of a cell",
        "batch": "sequences",
        "input": "elements of the input at one time step",
        "hidden": "elements of the state of one sequence",
        "stacked": "layers x directions",
        "state": "elements of the state of the whole batch",
        "weights": "elements of all weights",
    },
    flags={"backward": "the gradient"},
    read=_read_recurrent,
    amounts=("steps", "gated"),
    cpu_amounts=("streamed_bytes", "padding_flops", "width_padding_flops", "left_over"),
    count=_count_recurrent,
    shared=True,
)


def _read_linear_algebra(call: OpCall) -> Features:
    """FLOPs: 2 x batch x rows x columns x inner. For a square matrix that is its cube, up to a constant of each op."""
    if "dist" in call.op:
        backward = call.op.endswith("_backward")
        a, b = call.inputs[1:3] if backward else call.inputs[:2]
        batch, rows, columns, inner = math.prod(a.shape[:-2]), a.shape[-2], b.shape[-2], a.shape[-1]
    else:
        matrix = max((t for t in call.inputs if len(t.shape) > 1), key=lambda t: t.numel)
        batch, (rows, columns) = math.prod(matrix.shape[:-2]), matrix.shape[-2:]
        inner = min(rows, columns)
    return Features(2.0 * batch * rows * columns * inner, (batch, rows, columns, inner))


def _count_linear_algebra(work: Work, _threads: int) -> dict[str, float]:
    """Elements of all matrices, and the matrices of the batch, which are factorised one after the other."""
    batch, rows, columns = work.sizes[:3]
    return {"squares": batch * rows * columns, "matrices": batch}


LINEAR_ALGEBRA = Family(
    name="linear_algebra",
    ops=aten(
        "_linalg_solve_ex linalg_inv_ex linalg_cholesky_ex _linalg_det _linalg_slogdet linalg_solve_triangular "
        "triangular_solve _linalg_eigh linalg_eig linalg_eigvals linalg_qr _linalg_svd linalg_matrix_exp linalg_lu "
        "linalg_lu_factor_ex linalg_lu_solve linalg_ldl_factor_ex linalg_lstsq linalg_householder_product "
        "cholesky_inverse cholesky_solve _cdist_forward _cdist_backward _euclidean_dist"
    ),
    sizes={
        "batch": "matrices",
        "rows": "rows of a matrix; of distances, vectors of the first set",
        "columns": "columns of a matrix; of distances, vectors of the second set",
        "inner": "the shorter side of a matrix; of distances, elements of a vector",
    },
    read=_read_linear_algebra,
    amounts=("squares", "matrices"),
    count=_count_linear_algebra,
)


def _read_fourier(call: OpCall) -> Features:
    """FLOPs: 5 x elements x log2(length) (Cooley & Tukey, 1965)."""
    signal = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
    dims = next((argument for argument in call.args if isinstance(argument, tuple)), (-1,))
    length = math.prod(signal.shape[d] for d in dims if isinstance(d, int)) or 1
    flops = 5.0 * signal.numel * math.log2(2.0 + length)
    return Features(flops, (signal.numel, length), (float(not signal.contiguous),))


FOURIER = Family(
    name="fourier",
    ops=aten("_fft_r2c _fft_c2r _fft_c2c"),
    sizes={"numel": "elements of the larger side", "length": "points of one transform"},
    flags={"strided": "the larger side is not contiguous"},
    read=_read_fourier,
)
