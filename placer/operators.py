"""What each operator is made of: its family, its arithmetic and the memory it moves.

One registry, used on both sides: calibration describes the ops it measured with it, pricing the ops it has to price.
An op nobody registered is never free: it falls in the family ``other``, with the bytes of its operands as a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from placer.tracing.trace import OpCall, TensorSpec, Trace


@dataclass(frozen=True, slots=True)
class Context:
    """What an op cannot see of the step it stands in.

    ``footprint_bytes`` (parameters, gradients, optimizer state, activations) tells whether operands touched one step
    ago are still in a cache; ``recording`` whether autograd builds its graph around forward ops; ``previous_bytes``
    what the op before moved through the caches: the code of a tiny op runs several times slower after a large one.
    """

    footprint_bytes: int
    recording: bool
    previous_bytes: int = 0

    @classmethod
    def of(cls, trace: Trace) -> Context:
        return cls(footprint_bytes=trace.peak_bytes, recording=trace.mode == "train")


@dataclass(frozen=True, slots=True)
class Work:
    """One op call in the terms of its family. ``flops`` counts a multiply-add as two, ``bytes`` reads and writes."""

    family: str
    op: str
    dtype: str
    flops: float
    bytes: float
    #: Sizes (compared on a log scale) and flags (0 or 1), named by ``feature_names(family)``.
    sizes: tuple[float, ...]
    flags: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """The names of a family's features, and the function that reads them off an op call.

    ``amounts`` names what, besides FLOPs and bytes, the time of such an op is proportional to, and gives it for a Work.
    """

    sizes: tuple[str, ...]
    flags: tuple[str, ...]
    read: Callable[[OpCall], tuple[float, tuple[float, ...], tuple[float, ...]]]
    amounts: Mapping[str, Callable[[Work], float]] = field(default_factory=dict)


def _bytes(call: OpCall) -> float:
    return float(sum(t.stored_bytes for t in call.inputs) + sum(t.stored_bytes for t in call.outputs))


def _numel(specs: tuple[TensorSpec, ...]) -> int:
    return max((t.numel for t in specs), default=0)


def _matmul(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    # addmm, baddbmm and addmv carry the bias first.
    a, b = call.inputs[-2:]
    batch = a.shape[0] if len(a.shape) == 3 else 1
    m = a.shape[-2] if len(a.shape) > 1 else 1
    k = a.shape[-1] if a.shape else 1
    n = b.shape[-1] if len(b.shape) > 1 else 1
    flags = (float(_is_transposed(a)), float(_is_transposed(b)))
    return 2.0 * batch * m * n * k, (batch, m, n, k), flags


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
    return image.shape[0], cin, cout, groups, kernel, spatial, math.prod(image.shape[2:])


def _convolution_flags(call: OpCall, image: TensorSpec, weight: TensorSpec) -> tuple[float, ...]:
    dims = len(weight.shape) - 2
    return float(dims == 1), float(dims == 3), float(_flag(call)), float(not image.contiguous)


def _convolution(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    image, weight = call.inputs[:2]
    geometry = _convolution_geometry(call, image, weight, call.outputs[0])
    n, cin, cout, groups, kernel, spatial, _ = geometry
    return 2.0 * n * cin * cout * groups * kernel * spatial, geometry, _convolution_flags(call, image, weight)


def _convolution_backward(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    grad, image, weight = call.inputs[:3]
    geometry = _convolution_geometry(call, image, weight, grad)
    n, cin, cout, groups, kernel, spatial, _ = geometry
    to_input = any(o.shape == image.shape for o in call.outputs)
    flops = (4.0 if to_input else 2.0) * n * cin * cout * groups * kernel * spatial
    return flops, geometry, (*_convolution_flags(call, image, weight), float(to_input))


#: Arithmetic per element of the ops that are not a single instruction (polynomial or table evaluations, in FLOPs).
TRANSCENDENTAL = {
    "exp": 10, "log": 10, "tanh": 20, "sigmoid": 15, "gelu": 25, "silu": 18, "mish": 40, "softplus": 25, "erf": 20,
    "sin": 15, "cos": 15, "pow": 20, "elu": 15, "log1p": 15, "expm1": 15, "tan": 25, "atan2": 30, "log_sigmoid": 25,
    "gelu_backward": 35, "mish_backward": 50, "silu_backward": 25, "softplus_backward": 25, "elu_backward": 15,
    "log_sigmoid_forward": 25, "log_sigmoid_backward": 25, "hardswish": 4, "logit": 20, "lgamma": 60, "digamma": 60,
}  # fmt: skip


def _elementwise(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    out = max(_numel(call.outputs), _numel(call.inputs) if call.in_place else 0)
    name = call.op.removeprefix("aten::").rstrip("_")
    strided = any(not t.contiguous and 0 not in t.stride for t in call.inputs)
    broadcast = any(t.numel < out or 0 in t.stride for t in call.inputs if t.numel > 1)
    # One number for a whole row of the result: the loop cannot load them side by side.
    row = call.outputs[0].shape[-1] if call.outputs and call.outputs[0].shape else 1
    by_row = row > 1 and any(t.shape and t.numel > 1 and (t.shape[-1] == 1 or t.stride[-1] == 0) for t in call.inputs)
    flops = float(TRANSCENDENTAL.get(name, 1)) * out
    return flops, (out, _bytes(call)), (float(strided), float(broadcast), float(by_row), float(call.in_place))


def _reduction(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    source = max(call.inputs, key=lambda t: t.numel, default=None)
    if source is None:
        return 0.0, (0, 0), (0.0, 0.0)
    out = _numel(call.outputs)
    # The innermost dimension survives when the reduction runs over an outer one: another access pattern.
    kept = bool(call.outputs) and bool(source.shape) and bool(call.outputs[0].shape)
    inner_survives = kept and out > 1 and call.outputs[0].shape[-1] == source.shape[-1] > 1
    return float(source.numel), (source.numel, out), (float(inner_survives), float(not source.contiguous))


def _rows(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    source = max(call.inputs, key=lambda t: t.numel)
    inner = source.shape[-1] if source.shape else 1
    return 12.0 * source.numel, (source.numel, inner), (float(not source.contiguous),)


def _normalization(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    source = max(call.inputs, key=lambda t: t.numel)
    channels = max((t.numel for t in call.inputs if len(t.shape) == 1), default=1)
    return 8.0 * source.numel, (source.numel, channels), (float(not source.contiguous), float(_flag(call)))


def _pooling(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    large = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
    small = call.outputs[0] if not call.op.endswith("backward") else call.inputs[0]
    window = max(large.numel / max(small.numel, 1), 1.0)
    return float(large.numel), (large.numel, small.numel, window), (float(not large.contiguous),)


#: Ops that read rows of a table; the others write them.
_READS_ROWS = frozenset(
    f"aten::{name}"
    for name in ("embedding", "index_select", "gather", "index", "take", "masked_select", "nonzero", "embedding_bag",
                 "_embedding_bag")
)  # fmt: skip


def _indexed(call: OpCall) -> tuple[float, float, float]:
    """(elements moved, elements of the table, distinct indices) of an op that reads or writes rows by number."""
    index = max((t for t in call.inputs if _is_index(t)), key=lambda t: t.numel, default=None)
    indices = index.stored_bytes / index.item_bytes if index is not None else 1.0
    values = [t.numel for t in call.inputs if not _is_index(t)]
    out = _numel(call.outputs)
    if call.op in _READS_ROWS:
        return float(out), float(max(values, default=0)), indices
    written = max(values[1:], default=values[0] if values else 0)
    return float(written), float(out), indices


def _is_index(spec: TensorSpec) -> bool:
    return spec.dtype in ("int64", "int32", "bool", "uint8")


def _indexing(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    moved, table, indices = _indexed(call)
    # One index per row, broadcast over its elements: kernels move whole rows then.
    expanded = any(0 in t.stride for t in call.inputs if _is_index(t))
    return 0.0, (moved, table, indices, max(moved / max(indices, 1.0), 1.0)), (float(call.in_place), float(expanded))


def _indexing_bytes(call: OpCall) -> float:
    """Rows read and written (read twice where they are added up), the indices, and a table that is made or copied."""
    moved, table, _ = _indexed(call)
    passes = 2.0 if call.op in _READS_ROWS else 3.0
    made = 0.0 if call.op in _READS_ROWS or call.in_place else 8.0 * table
    return 4.0 * passes * moved + made + sum(t.stored_bytes for t in call.inputs if _is_index(t))


def _attention(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
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


def _encoder(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    source = call.inputs[0]
    tokens, width = max(source.numel // source.shape[-1], 1), source.shape[-1]
    length = source.shape[-2] if len(source.shape) > 2 else tokens
    # Weights only: a mask is as two-dimensional, but no side of it is the width.
    weights = sum(t.numel for t in call.inputs[1:] if len(t.shape) == 2 and width in t.shape)
    heads = call.args[1] if len(call.args) > 1 and type(call.args[1]) is int else 1
    return 2.0 * tokens * weights + 4.0 * tokens * length * width, (tokens, length, width, weights, heads), ()


def _recurrent(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
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
    return flops, (length, max(rows // length, 1), sequence.shape[-1], hidden, stacked), (float(backward),)


def _time_steps(call: OpCall) -> int:
    """The tracer puts the number of time steps last."""
    last = call.args[-1] if call.args else 1
    return max(last, 1) if isinstance(last, int) else 1


def _optimizer(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    settings = {a[0]: a[1] for a in call.args if isinstance(a, tuple) and len(a) == 2}
    flags = tuple(float(bool(settings.get(name))) for name in ("momentum", "weight_decay", "fused"))
    return 12.0 * call.inputs[0].numel, (call.inputs[0].numel,), flags


def _other(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    return float(_numel((*call.inputs, *call.outputs))), (_numel(call.inputs), _numel(call.outputs)), ()


def _nothing(call: OpCall) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    return 0.0, (), ()


def _padding_flops(work: Work) -> float:
    """Arithmetic on channels that are only there to fill vector registers (16 float32 in oneDNN's blocked layouts)."""
    _, cin, cout, groups = work.sizes[:4]
    return 0.0 if groups > 1 else work.flops * (_filled(cin) * _filled(cout) - 1.0)


def _product_padding_flops(work: Work) -> float:
    """The same of a matrix product, whose kernels work on tiles of the result."""
    _, m, n, _ = work.sizes[:4]
    return work.flops * (_filled(m) * _filled(n) - 1.0)


def _filled(size: float) -> float:
    """How much larger a dimension is once it is rounded up to whole vector registers."""
    return math.ceil(size / 16) * 16 / size if size > 0 else 1.0


def _unfolded_bytes(work: Work) -> float:
    """Memory of the kernel-sized patches around every position, which kernels that unfold the image write and read."""
    n, cin, _, groups, kernel, positions = work.sizes[:6]
    return 4.0 * n * cin * groups * kernel * positions


#: Elements below which the CPU's loops stay on one core (``at::internal::GRAIN_SIZE``): a cliff in every thread count.
GRAIN = 32768


def _chunks(work: Work) -> float:
    return max(math.ceil(work.sizes[0] / GRAIN), 1)


#: What one of very many threads would do: everything while an op is too small to share, little of a large one.
_CHUNKS: Mapping[str, Callable[[Work], float]] = {
    "chunk_flops": lambda w: w.flops / _chunks(w),
    "chunk_bytes": lambda w: w.bytes / _chunks(w),
}

FAMILIES: Mapping[str, Family] = {
    "view": Family((), (), _nothing),
    "matmul": Family(
        ("batch", "m", "n", "k"),
        ("a_transposed", "b_transposed"),
        _matmul,
        {"padding_flops": _product_padding_flops},
    ),
    "convolution": Family(
        ("batch", "in_channels", "out_channels", "groups", "kernel", "positions", "input_positions"),
        ("one_d", "three_d", "transposed", "strided"),
        _convolution,
        {"padding_flops": _padding_flops, "unfolded_bytes": _unfolded_bytes},
    ),
    "convolution_backward": Family(
        ("batch", "in_channels", "out_channels", "groups", "kernel", "positions", "input_positions"),
        ("one_d", "three_d", "transposed", "strided", "to_input"),
        _convolution_backward,
        {"padding_flops": _padding_flops, "unfolded_bytes": _unfolded_bytes},
    ),
    "elementwise": Family(
        ("numel", "bytes"),
        ("strided", "broadcast", "by_row", "in_place"),
        _elementwise,
        {**_CHUNKS, "row_broadcast": lambda w: w.flags[2] * w.sizes[0]},
    ),
    "reduction": Family(("numel", "outputs"), ("inner_survives", "strided"), _reduction, _CHUNKS),
    "softmax": Family(("numel", "row"), ("strided",), _rows, _CHUNKS),
    "normalization": Family(("numel", "channels"), ("strided", "training"), _normalization, _CHUNKS),
    "pooling": Family(
        ("numel", "pooled", "window"), ("strided",), _pooling, {"compared": lambda w: w.sizes[1] * w.sizes[2]}
    ),
    "indexing": Family(
        ("moved", "table", "indices", "width"),
        ("in_place", "expanded"),
        _indexing,
        {"moved": lambda w: w.sizes[0], "table": lambda w: w.sizes[1], "indices": lambda w: w.sizes[2]},
    ),
    "attention": Family(
        ("batch", "length", "source", "width"),
        ("causal", "masked", "dropout"),
        _attention,
        {
            "scores": lambda w: w.sizes[0] * w.sizes[1] * w.sizes[2],
            "rows": lambda w: w.sizes[0],
            "dropped_scores": lambda w: w.flags[2] * w.sizes[0] * w.sizes[1] * w.sizes[2],
        },
    ),
    "encoder": Family(
        ("tokens", "length", "width", "weights", "heads"),
        (),
        _encoder,
        {"scores": lambda w: w.sizes[0] * w.sizes[1] * w.sizes[4], "activations": lambda w: w.sizes[0] * w.sizes[2]},
    ),
    "recurrent": Family(
        ("length", "batch", "input", "hidden", "stacked"),
        ("backward",),
        _recurrent,
        {
            "steps": lambda w: w.sizes[0] * w.sizes[4],
            "gated": lambda w: w.sizes[0] * w.sizes[1] * w.sizes[3] * w.sizes[4],
        },
    ),
    "random": Family(("numel", "bytes"), ("strided", "broadcast", "by_row", "in_place"), _elementwise),
    "sorting": Family(
        ("numel", "row"), ("strided",), _rows, {"compared": lambda w: w.sizes[0] * math.log2(2.0 + w.sizes[1])}
    ),
    "optimizer": Family(("numel",), ("momentum", "weight_decay", "fused"), _optimizer),
    "other": Family(("inputs", "outputs"), (), _other),
}

#: Features every family has besides its own: where the op stands in its step (see Context).
CONTEXT_SIZES = ("footprint", "previous")
CONTEXT_FLAGS = ("kept", "recording")

_NAMES: Mapping[str, str] = {
    "matmul": "mm addmm bmm baddbmm mv addmv dot addbmm matmul linear _addmm_activation",
    "convolution": "convolution _convolution mkldnn_convolution cudnn_convolution conv2d conv1d conv3d",
    "convolution_backward": "convolution_backward",
    "reduction": "sum mean amax amin max min argmax argmin var std var_mean std_mean norm linalg_vector_norm prod "
    "any all logsumexp nansum count_nonzero nll_loss_forward nll_loss_backward mse_loss mse_loss_backward "
    "smooth_l1_loss nll_loss2d_forward nll_loss2d_backward binary_cross_entropy l1_loss",
    "softmax": "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data _safe_softmax",
    "normalization": "native_batch_norm native_batch_norm_backward native_layer_norm native_layer_norm_backward "
    "native_group_norm native_group_norm_backward cudnn_batch_norm cudnn_batch_norm_backward "
    "_native_batch_norm_legit _native_batch_norm_legit_no_training _fused_rms_norm _fused_rms_norm_backward "
    "batch_norm_backward _batch_norm_with_update",
    "pooling": "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward max_pool3d_with_indices max_pool3d_with_indices_backward "
    "avg_pool3d avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward max_pool1d avg_pool1d "
    "_adaptive_avg_pool3d _adaptive_avg_pool3d_backward upsample_nearest2d upsample_nearest2d_backward "
    "upsample_bilinear2d upsample_bilinear2d_backward upsample_nearest1d upsample_nearest1d_backward "
    "upsample_linear1d",
    "indexing": "embedding embedding_dense_backward index_select gather scatter scatter_ scatter_add scatter_add_ "
    "index index_put index_put_ _index_put_impl_ index_add index_add_ scatter_reduce scatter_reduce_ index_copy "
    "index_copy_ take masked_select embedding_bag _embedding_bag _embedding_bag_backward _embedding_bag_dense_backward "
    "nonzero index_fill "
    "index_fill_ select_scatter slice_scatter select_backward slice_backward",
    "attention": "scaled_dot_product_attention scaled_dot_product_attention_backward",
    "encoder": "_transformer_encoder_layer_fwd _native_multi_head_attention",
    "recurrent": "lstm lstm_backward gru gru_backward rnn_tanh rnn_tanh_backward rnn_relu rnn_relu_backward "
    "lstm_cell lstm_cell_backward gru_cell gru_cell_backward rnn_tanh_cell rnn_tanh_cell_backward rnn_relu_cell "
    "rnn_relu_cell_backward",
    "random": "bernoulli bernoulli_ normal normal_ uniform uniform_ rand randn rand_like randn_like native_dropout "
    "native_dropout_backward dropout dropout_backward randint randint_like randperm multinomial exponential_ random_",
    "sorting": "sort argsort topk cumsum cumprod cummax cummin logcumsumexp median kthvalue unique _unique2 unique_dim",
}
_FAMILY_OF = {f"aten::{name}": family for family, names in _NAMES.items() for name in names.split()}
#: Not reached through an operand of the same size: their cost is arithmetic placer has no formula for.
_IRREGULAR = (
    "aten::linalg_",
    "aten::_linalg_",
    "aten::fft_",
    "aten::_fft_",
    "aten::cdist",
    "aten::_cdist",
    "aten::_ctc",
)


@lru_cache(maxsize=4096)
def family_of(op: str) -> str | None:
    """The family registered for ``op``, None where there is none (see ``describe`` for what happens then)."""
    if op.startswith("optimizer::"):
        return "optimizer"
    if op in _FAMILY_OF:
        return _FAMILY_OF[op]
    if op.startswith(_IRREGULAR) or not op.startswith("aten::"):
        return "other"
    return None


def describe(call: OpCall, context: Context) -> Work:
    """The family, work and features of one op call standing in a step.

    An unregistered op is a view when it only aliases, elementwise when its largest operand is as large as its result
    (what most of PyTorch's two thousand ops are), and ``other`` when neither holds.
    """
    family = family_of(call.op)
    if call.view and not call.in_place:
        family = "view"
    elif family is None:
        family = "elementwise" if _looks_elementwise(call) else "other"
    try:
        flops, sizes, flags = FAMILIES[family].read(call)
    except (IndexError, ValueError):  # an overload with other operands than its siblings
        family = "other"
        flops, sizes, flags = FAMILIES[family].read(call)
    moved = 0.0 if family == "view" else _moved_bytes(call, family)
    dtype = next((t.dtype for t in (*call.outputs, *call.inputs) if "float" in t.dtype), "float32")
    recording = context.recording and call.phase in ("forward", "loss")
    return Work(
        family=family,
        op=call.op,
        dtype=dtype,
        flops=flops,
        bytes=moved,
        sizes=(*(float(s) for s in sizes), float(context.footprint_bytes), float(context.previous_bytes)),
        flags=(*flags, float(call.kept_bytes > 0), float(recording)),
    )


def describe_step(trace: Trace) -> list[Work]:
    """The work of every call of a step, in order; equal work is one object."""
    context = Context.of(trace)
    alone: dict[tuple[object, ...], Work] = {}
    placed: dict[tuple[int, float], Work] = {}
    works: list[Work] = []
    for call in trace.calls:
        key = _key(call)
        work = alone.get(key)
        if work is None:
            work = alone[key] = describe(call, context)
        works.append(work)
    result: list[Work] = []
    # Steps follow each other: before the first op came the last one.
    previous = next((_octave(w.bytes) for w in reversed(works) if w.bytes), 0.0)
    for work in works:
        place = id(work), previous
        found = placed.get(place)
        if found is None:
            found = placed[place] = replace(work, sizes=(*work.sizes[:-1], previous))
        result.append(found)
        if work.bytes:
            previous = _octave(work.bytes)
    return result


def _key(call: OpCall) -> tuple[object, ...]:
    """What a call's work depends on."""
    forward = call.phase in ("forward", "loss")
    return call.op, call.inputs, call.outputs, call.args, call.view, call.in_place, call.kept_bytes > 0, forward


def _octave(nbytes: float) -> float:
    """Rounded to a power of two: calls that differ in less are priced once."""
    return 2.0 ** round(math.log2(nbytes)) if nbytes else 0.0


#: Ops inside the update of one parameter tensor: Adam's loop has about a dozen.
_OPS_IN_UPDATE = 12
#: Ops inside one time step of a recurrent layer.
_OPS_IN_TIME_STEP = 8


def ops_inside(work: Work) -> int:
    """How many dispatches the call stands for at the least: more than one where an op is kept whole."""
    if work.family == "optimizer":
        return _OPS_IN_UPDATE
    if work.family == "recurrent":
        return max(int(_OPS_IN_TIME_STEP * work.sizes[0] * work.sizes[4]), 1)
    return 1


def amounts(work: Work) -> dict[str, float]:
    """What the time of an op is a sum over: FLOPs, bytes, and what else its family is proportional to."""
    extra = FAMILIES[work.family].amounts
    return {"flops": work.flops, "bytes": work.bytes, **{name: read(work) for name, read in extra.items()}}


def feature_names(family: str) -> tuple[str, ...]:
    """Names of the features ``describe`` gives for ``family``: sizes first, then flags."""
    return (*FAMILIES[family].sizes, *CONTEXT_SIZES, *FAMILIES[family].flags, *CONTEXT_FLAGS)


def _looks_elementwise(call: OpCall) -> bool:
    return _numel(call.outputs) >= _numel(call.inputs) or call.in_place


#: Tensors of the parameter's size an update reads and writes, parameter and gradient included; 7 where unknown.
_UPDATE_PASSES = {"SGD": 3, "Adam": 7, "AdamW": 7, "RMSprop": 5, "Adagrad": 5, "Adadelta": 7, "Adamax": 7}


def _moved_bytes(call: OpCall, family: str) -> float:
    if family == "optimizer":
        passes = _UPDATE_PASSES.get(call.op.removeprefix("optimizer::"), 7)
        return float(passes * call.inputs[0].stored_bytes)
    if family == "indexing":
        return _indexing_bytes(call)
    return _bytes(call)
