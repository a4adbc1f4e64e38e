"""What each operator is made of: its family, its arithmetic and the memory it moves.

One registry, used on both sides: calibration describes the ops it measured with it, pricing the ops it has to price.
An op nobody registered is never free: it falls in the family ``other``, with the bytes of its operands as a floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from placer.pricing import layouts, parameter_updates, readers, reductions, sharing
from placer.pricing.context import CONTEXT_FLAGS, CONTEXT_SIZES, Context, Place, places, reuse_share
from placer.pricing.sharing import Sharing
from placer.tracing import OpCall, Trace


@dataclass(frozen=True, slots=True)
class Work:
    """One op call in the terms of its family. ``flops`` counts a multiply-add as two, ``bytes`` reads and writes.

    ``op`` is the op's name, with its operands' layout where that picks another kernel (see ``layouts.kernel``).
    ``dtype`` is that of its floating numbers; ``float32+bool`` where operands of another dtype are converted first.
    """

    family: str
    op: str
    dtype: str
    flops: float
    bytes: float
    #: Sizes (compared on a log scale) and flags (0 to 1), named by ``feature_names(family)``.
    sizes: tuple[float, ...]
    flags: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """The names of a family's features, and the function that reads them off an op call.

    ``amounts`` names what, besides FLOPs and bytes, the time of such an op is proportional to, and gives it for a Work.
    ``cpu_amounts`` are more of them, on which only a CPU's kernels spend time: few samples of an accelerator would
    charge to them what its FLOPs cost.
    ``sharing`` tells how a CPU's cores share its loops; None: a family whose kernels see to that themselves.
    ``earlier`` are amounts of an op on so many threads that only profiles fitted before know: no longer fitted.
    ``evaluates`` tells whether a function of each element is evaluated, which takes longer than to fetch it.
    ``variant`` tells the shapes of one op apart that other kernels run than the rest, as if they were another op.
    """

    sizes: tuple[str, ...]
    flags: tuple[str, ...]
    read: Callable[[OpCall], tuple[float, tuple[float, ...], tuple[float, ...]]]
    amounts: Mapping[str, Callable[[Work], float]] = field(default_factory=dict)
    cpu_amounts: Mapping[str, Callable[[Work], float]] = field(default_factory=dict)
    sharing: Sharing | None = None
    earlier: Mapping[str, Callable[[Work, int], float]] = field(default_factory=dict)
    evaluates: Callable[[Work], bool] = lambda _: False
    variant: Callable[[Work], str] = lambda _: ""


#: A convolution's shape: channels of one group, elements of the kernel, positions of result and image, and elements.
_GEOMETRY = (
    "batch", "in_channels", "out_channels", "groups", "kernel", "positions", "input_positions", "weights", "result",
)  # fmt: skip

FAMILIES: Mapping[str, Family] = {
    "view": Family((), (), readers.nothing),
    "matmul": Family(
        ("batch", "m", "n", "k", "left", "right", "product", "narrowest"),
        ("a_transposed", "b_transposed", "row", "column", "ragged"),
        readers.matmul,
        {"padding_flops": readers.product_padding_flops},
        cpu_amounts={
            "rows": readers.product_rows,
            "depth": readers.product_depth,
            "further": lambda w: w.sizes[0] - 1.0,
        },
    ),
    "convolution": Family(
        _GEOMETRY,
        ("one_d", "three_d", "transposed", "strided", "dilated", "ragged"),
        readers.convolution,
        readers.CONVOLVED,
        earlier=readers.CONVOLVED_EARLIER,
        variant=readers.convolution_variant,
    ),
    "convolution_backward": Family(
        _GEOMETRY,
        ("one_d", "three_d", "transposed", "strided", "dilated", "ragged", "to_input"),
        readers.convolution_backward,
        readers.CONVOLVED,
        earlier=readers.CONVOLVED_EARLIER,
        variant=readers.convolution_variant,
    ),
    "elementwise": Family(
        ("numel", "bytes", "inner", "block"),
        ("strided", "broadcast", "in_place"),
        readers.elementwise,
        readers.LOOPS,
        sharing=Sharing(
            sharing.elementwise_pieces, {"flops": lambda w: w.flops, "bytes": lambda w: w.bytes, **readers.LOOPS}
        ),
        earlier=sharing.CHUNKS,
        evaluates=readers.evaluates_function,
    ),
    "reduction": Family(
        ("numel", "outputs"),
        ("inner_survives", "strided"),
        readers.reduction,
        {"row_results": reductions.row_results},
        sharing=reductions.SHARING,
        earlier={**sharing.CHUNKS, **reductions.EARLIER},
    ),
    "softmax": Family(
        ("numel", "row"), ("strided",), readers.rows, sharing=Sharing(sharing.fine_grains), earlier=sharing.CHUNKS
    ),
    "normalization": Family(
        ("numel", "channels"), ("strided", "training"), readers.normalization,
        sharing=Sharing(sharing.normalization_pieces), earlier=sharing.CHUNKS,
    ),
    "pooling": Family(
        ("numel", "pooled", "window"), ("strided",), readers.pooling, {"compared": lambda w: w.sizes[1] * w.sizes[2]}
    ),
    "indexing": Family(
        ("moved", "table", "indices", "width"),
        ("in_place", "expanded", "wide", "renewed"),
        readers.indexing,
        {
            "moved": lambda w: w.sizes[0],
            "moved_singly": lambda w: 0.0 if w.flags[2] else w.sizes[0],
            "renewed": lambda w: w.sizes[0] if w.flags[3] else 0.0,
            "table": lambda w: w.sizes[1],
            "indices": lambda w: w.sizes[2],
            "added_in_turns": sharing.added_in_turns,
        },
    ),
    "attention": Family(
        ("batch", "length", "source", "width"),
        ("causal", "masked", "dropout"),
        readers.attention,
        {
            "scores": lambda w: w.sizes[0] * w.sizes[1] * w.sizes[2],
            "rows": lambda w: w.sizes[0],
            "dropped_scores": lambda w: w.flags[2] * w.sizes[0] * w.sizes[1] * w.sizes[2],
        },
    ),
    "encoder": Family(
        ("tokens", "length", "width", "weights", "heads"),
        (),
        readers.encoder,
        {"scores": lambda w: w.sizes[0] * w.sizes[1] * w.sizes[4], "activations": lambda w: w.sizes[0] * w.sizes[2]},
    ),
    "recurrent": Family(
        ("length", "batch", "input", "hidden", "stacked", "state", "weights"),
        ("backward",),
        readers.recurrent,
        {"steps": sharing.time_steps, "gated": sharing.gated},
        cpu_amounts={
            "streamed_bytes": readers.streamed_bytes,
            "padding_flops": readers.step_padding_flops,
            "width_padding_flops": readers.width_padding_flops,
            "left_over": readers.left_over,
        },
        sharing=Sharing(sharing.state_pieces, {"gated": sharing.gated}, loops=sharing.time_steps),
    ),
    "linear_algebra": Family(
        ("batch", "rows", "columns", "inner"),
        (),
        readers.linear_algebra,
        {"squares": lambda w: w.sizes[0] * w.sizes[1] * w.sizes[2], "matrices": lambda w: w.sizes[0]},
    ),
    "fourier": Family(("numel", "length"), ("strided",), readers.fourier),
    "random": Family(("numel", "bytes", "inner", "block"), ("strided", "broadcast", "in_place"), readers.elementwise),
    "sorting": Family(
        ("numel", "row"), ("strided",), readers.rows, {"compared": lambda w: w.sizes[0] * math.log2(2.0 + w.sizes[1])}
    ),
    "optimizer": Family(
        ("numel", "tensors"),
        ("momentum", "weight_decay", "fused"),
        readers.optimizer,
        {"step_share": lambda w: 1.0 / w.sizes[1]},
    ),
    "other": Family(("inputs", "outputs"), (), readers.other),
}

#: Ops whose operand only says of what kind and on which device the result is: no element of it is read. Without it
#: they look elementwise, as they are.
_TEMPLATED = frozenset({"aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::new_empty"})

_NAMES: Mapping[str, str] = {
    # Reading one number moves no data worth counting; that an accelerator is waited for is counted by itself.
    "view": "_local_scalar_dense",
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
    "index_copy_ take masked_select embedding_bag _embedding_bag _embedding_bag_forward_only "
    "_embedding_bag_backward _embedding_bag_dense_backward "
    "nonzero index_fill "
    "index_fill_ select_scatter slice_scatter select_backward slice_backward",
    "attention": "scaled_dot_product_attention scaled_dot_product_attention_backward",
    "encoder": "_transformer_encoder_layer_fwd _native_multi_head_attention",
    "recurrent": "lstm lstm_backward gru gru_backward rnn_tanh rnn_tanh_backward rnn_relu rnn_relu_backward "
    "lstm_cell lstm_cell_backward gru_cell gru_cell_backward rnn_tanh_cell rnn_tanh_cell_backward rnn_relu_cell "
    "rnn_relu_cell_backward",
    "random": "bernoulli bernoulli_ normal normal_ uniform uniform_ rand randn rand_like randn_like native_dropout "
    "native_dropout_backward dropout dropout_backward randint randint_like randperm multinomial exponential_ random_",
    "linear_algebra": "_linalg_solve_ex linalg_inv_ex linalg_cholesky_ex _linalg_det _linalg_slogdet "
    "linalg_solve_triangular triangular_solve _linalg_eigh linalg_eig linalg_eigvals linalg_qr _linalg_svd "
    "linalg_matrix_exp linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_ldl_factor_ex linalg_lstsq "
    "linalg_householder_product cholesky_inverse cholesky_solve _cdist_forward _cdist_backward _euclidean_dist",
    "fourier": "_fft_r2c _fft_c2r _fft_c2c",
    "sorting": "sort argsort topk cumsum cumprod cummax cummin logcumsumexp median kthvalue unique _unique2 unique_dim",
}
_FAMILY_OF = {f"aten::{name}": family for family, names in _NAMES.items() for name in names.split()}
#: Not reached through an operand of the same size: their cost is arithmetic placer has no formula for.
_IRREGULAR = ("aten::linalg_", "aten::_linalg_", "aten::fft_", "aten::_fft_", "aten::_ctc")


@lru_cache(maxsize=4096)
def family_of(op: str) -> str | None:
    """The family registered for ``op``, None where there is none (see ``describe`` for what happens then)."""
    if op.startswith(parameter_updates.PREFIX):
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
    if call.op in _TEMPLATED:
        call = replace(call, inputs=())
    if call.view and not call.in_place:
        family = "view"
    elif family is None:
        family = "elementwise" if _looks_elementwise(call) else "other"
    try:
        flops, sizes, flags = FAMILIES[family].read(call)
    except (IndexError, ValueError):  # an overload with other operands than its siblings
        family = "other"
        flops, sizes, flags = FAMILIES[family].read(call)
    if family == "optimizer":
        sizes = (sizes[0], float(context.updates))
    moved = 0.0 if family == "view" else _moved_bytes(call, family)
    dtype = next((t.dtype for t in (*call.outputs, *call.inputs) if "float" in t.dtype), "float32")
    converted = readers.converted(call)
    forward = call.phase in ("forward", "loss")
    return Work(
        family=family,
        op=layouts.kernel(call),
        dtype=f"{dtype}+{converted}" if converted else dtype,
        flops=flops,
        bytes=moved,
        sizes=(*map(float, sizes), *context.sizes),
        flags=(
            *flags,
            float(call.kept_bytes > 0),
            float(context.recording and forward),
            float(readers.repeats(call)),
            context.evicted if forward else 0.0,
            float(context.first),
        ),
    )


def describe_step(trace: Trace) -> list[Work]:
    """The work of every call of a step, in order; equal work is one object."""
    context = Context.of(trace)
    alone: dict[tuple[object, ...], Work] = {}
    works: list[Work] = []
    for call in trace.calls:
        key = _key(call)
        work = alone.get(key)
        if work is None:
            work = alone[key] = describe(call, context)
        works.append(work)
    placed: dict[tuple[int, Place], Work] = {}
    result: list[Work] = []
    for work, place in zip(works, places([(layouts.op(work.op), work.bytes) for work in works]), strict=True):
        found = placed.get((id(work), place))
        if found is None:
            found = placed[id(work), place] = _at(place, work, context)
        result.append(found)
    return result


def _at(place: Place, work: Work, context: Context) -> Work:
    """``work``, described without a place, at ``place``."""
    sizes = work.sizes[: -len(CONTEXT_SIZES)]
    return replace(work, sizes=(*sizes, *context.at(place).sizes), flags=(*work.flags[:-1], float(place.first)))


def _key(call: OpCall) -> tuple[object, ...]:
    """What a call's work depends on."""
    forward = call.phase in ("forward", "loss")
    return call.op, call.inputs, call.outputs, call.args, call.view, call.in_place, call.kept_bytes > 0, forward


#: Ops inside the update of one parameter tensor: Adam's loop has about a dozen.
_OPS_IN_UPDATE = 12
#: Ops inside one time step of a recurrent layer.
_OPS_IN_TIME_STEP = 8


def ops_inside(work: Work) -> int:
    """How many dispatches the call stands for at the least: more than one where an op is kept whole."""
    if work.family == "optimizer":
        return _OPS_IN_UPDATE
    if work.family == "recurrent":
        return max(int(_OPS_IN_TIME_STEP * sharing.time_steps(work)), 1)
    return 1


def amounts(work: Work, threads: int = 1) -> dict[str, float]:
    """What the time of an op is a sum over: FLOPs, bytes, and what else its family is proportional to.

    ``threads`` are the CPU's, among which some families' loops are shared.
    """
    family = FAMILIES[work.family]
    fixed = {
        "flops": work.flops, "bytes": work.bytes, "evicted": work.flags[-2], "first": work.flags[-1],
        "reuse_distance": reuse_share(work.sizes[-1]),
    }  # fmt: skip
    shared = sharing.per_core(work, family.sharing, threads) if family.sharing is not None else {}
    own = {name: read(work) for name, read in (*family.amounts.items(), *family.cpu_amounts.items())}
    earlier = {name: read(work, threads) for name, read in family.earlier.items()}
    return {**fixed, **shared, **own, **earlier}


def feature_names(family: str) -> tuple[str, ...]:
    """Names of the features ``describe`` gives for ``family``: sizes first, then flags."""
    return (*FAMILIES[family].sizes, *CONTEXT_SIZES, *FAMILIES[family].flags, *CONTEXT_FLAGS)


def _looks_elementwise(call: OpCall) -> bool:
    return readers.largest(call.outputs) >= readers.largest(call.inputs) or call.in_place


def _moved_bytes(call: OpCall, family: str) -> float:
    if family == "optimizer":
        return parameter_updates.moved_bytes(call)
    if family == "indexing":
        return readers.indexing_bytes(call)
    return readers.operand_bytes(call)
