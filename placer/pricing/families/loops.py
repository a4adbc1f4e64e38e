"""Ops that walk their operands: elementwise ones, random numbers, rows and windows, and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placer.pricing.families.family import FINE_GRAIN, GRAIN, Family, Features, aten, chunks, cut, of_busiest
from placer.pricing.work import Work, has_true_argument, largest, op_of, operand_bytes
from placer.tracing import OpCall, TensorSpec, broadcast_strides


@dataclass(frozen=True, slots=True)
class Loop:
    """The innermost loop: its ``length`` in elements, and whether an operand is ``strided`` along it.

    ``block``: elements of the two innermost loops together.
    """

    length: int
    block: int
    strided: bool


def innermost(written: TensorSpec, read: Sequence[TensorSpec]) -> Loop:
    """The innermost loops of a kernel that writes ``written`` from ``read``, broadcast to it or part of it."""
    shape, numel = written.shape, max(written.numel, 1)
    if written.contiguous and all(t.shape == shape and t.contiguous for t in read):
        return Loop(numel, numel, strided=False)
    whole = [t for t in read if _broadcasts(t, shape)]
    strides = [written.stride, *(broadcast_strides(t, shape) for t in whole)]
    order = sorted((d for d, n in enumerate(shape) if n != 1), key=lambda d: (strides[0][d], -d))
    if not order:
        return Loop(1, 1, strided=False)
    length, block = _coalesced(shape, order, strides)
    # Parts of the result (padding, a slice's gradient) are written piece by piece.
    for t in read:
        if t.numel > 1 and not _broadcasts(t, shape):
            piece_length, piece_block = _piece(t, shape)
            length, block = min(length, piece_length), min(block, piece_block)
    return Loop(max(length, 1), max(block, length, 1), strided=any(s[order[0]] > 1 for s in strides))


#: Ops that put their operands side by side along a dimension of the result, which a stack adds.
_SIDE_BY_SIDE = aten("cat stack")


def _side_by_side(call: OpCall) -> Loop:
    """The innermost loops of a call that puts its operands side by side: each is copied run by run.

    The elements of a run are adjacent in the result: those of all dimensions from the one on along which operands lie
    (``cat_serial_kernel`` in ATen/native/cpu/CatKernel.cpp). Of operands that differ, the mean run counts.
    """
    parts = [t for t in call.inputs if t.numel]
    dim = call.args[0] if call.args and isinstance(call.args[0], int) else 0
    dim %= max(len(call.outputs[0].shape), 1)
    elements = sum(t.numel for t in parts)
    runs = sum(math.prod(t.shape[:dim]) for t in parts)
    return Loop(max(elements // max(runs, 1), 1), max(elements // max(len(parts), 1), 1), strided=False)


def _coalesced(shape: Sequence[int], order: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Elements of the innermost loop, and of the two innermost, after dimensions are coalesced.

    ``order`` names the dimensions of ``shape`` from the innermost on; ``strides`` are those of every operand.
    """
    sizes: list[int] = []
    start = order[0]
    for d in order:
        if sizes and all(s[d] == s[start] * sizes[-1] for s in strides):
            sizes[-1] *= shape[d]
        elif len(sizes) == 2:
            break
        else:
            sizes.append(shape[d])
            start = d
    return sizes[0], math.prod(sizes)


def _broadcasts(spec: TensorSpec, shape: Sequence[int]) -> bool:
    rank = len(spec.shape)
    return rank <= len(shape) and all(n in (1, m) for n, m in zip(spec.shape, shape[len(shape) - rank :], strict=True))


def _piece(spec: TensorSpec, shape: Sequence[int]) -> tuple[int, int]:
    """Elements that an operand and a result of other sizes walk in one loop, and in the two innermost."""
    sizes = [1, 1]
    inner = 0
    for n, m in zip(reversed(spec.shape), reversed(shape), strict=False):
        sizes[inner] *= max(min(n, m), 1)
        if n != m:  # beyond this dimension the elements are not adjacent
            if inner:
                break
            inner = 1
    return sizes[0], sizes[0] * sizes[1]

#: FLOPs per element of functions that are not a single instruction but a polynomial or a table. Any other takes 1.
_EVALUATED = {
    "exp": 10, "log": 10, "tanh": 20, "sigmoid": 15, "gelu": 25, "silu": 18, "mish": 40, "softplus": 25, "erf": 20,
    "sin": 15, "cos": 15, "pow": 20, "elu": 15, "log1p": 15, "expm1": 15, "tan": 25, "atan2": 30, "log_sigmoid": 25,
    "gelu_backward": 35, "mish_backward": 50, "silu_backward": 25, "softplus_backward": 25, "elu_backward": 15,
    "log_sigmoid_forward": 25, "log_sigmoid_backward": 25, "hardswish": 4, "logit": 20, "lgamma": 60, "digamma": 60,
}  # fmt: skip
#: FLOPs per element from which on arithmetic takes longer than memory, whatever cache the element comes from.
_LONG = 10
#: Elements up to which GELU stays on one core (ATen/native/cpu/Activation.cpp).
GELU_GRAIN = 16384
_GELU = aten("gelu gelu_backward")
#: Functions from a vector math library, whose loops are shared early (ATen/native/cpu/UnaryOpsKernel.cpp).
_FINE = aten(
    "acos asin atan cos erf erfc erfinv exp expm1 i0 lgamma log log10 log1p log2 log_sigmoid_forward logit sin sqrt "
    "tan tanh trunc"
)

_LOOP_SIZES = {
    "numel": "elements of the result",
    "bytes": "bytes of all operands and results",
    "inner": "elements of the innermost loop",
    "block": "elements of the two innermost loops together",
}
_LOOP_FLAGS = {
    "strided": "elements that follow each other in the innermost loop are not adjacent in memory",
    "broadcast": "an operand is smaller than the result, or expanded to it",
    "in_place": "an operand is overwritten",
}


def _read_elementwise(call: OpCall) -> Features:
    """FLOPs: 1 per element, more for functions that are not one instruction."""
    out = max(largest(call.outputs), largest(call.inputs) if call.in_place else 0)
    name = call.op.removeprefix("aten::").rstrip("_")
    broadcast = any(t.numel < out or 0 in t.stride for t in call.inputs if t.numel > 1)
    written = call.inputs[:1] if call.in_place else call.outputs[:1]
    loop = Loop(1, 1, strided=False)
    if written:
        loop = _side_by_side(call) if call.op in _SIDE_BY_SIDE else innermost(written[0], call.inputs)
    most = max(out, 1)
    return Features(
        float(_EVALUATED.get(name, 1)) * out,
        (out, operand_bytes(call), min(loop.length, most), min(loop.block, most)),
        (float(loop.strided), float(broadcast), float(call.in_place)),
    )


def evaluates(work: Work) -> bool:
    """Whether an op evaluates a polynomial or a table for each element, which takes longer than fetching it."""
    return work.family == "elementwise" and work.flops >= _LONG * work.sizes[0] > 0


def _count_elementwise(work: Work, threads: int) -> dict[str, float]:
    numel, _, inner, block = work.sizes[:4]
    own = {
        # How often the innermost loop starts again, how often the two innermost do, and elements that are not adjacent
        # in memory to the one before.
        "restarts": max(numel / max(inner, 1.0) - 1.0, 0.0),
        "blocks": max(numel / max(block, 1.0) - 1.0, 0.0),
        "strided": work.flags[0] * numel,
    }
    return {**own, **of_busiest(pieces_of_elementwise(work), threads, flops=work.flops, bytes=work.bytes, **own)}


def pieces_of_elementwise(work: Work) -> float:
    """Pieces that the loop over all elements is cut into."""
    numel, name = work.sizes[0], work.op.rstrip("_")
    fine = name in _FINE or (name in _GELU and numel > GELU_GRAIN)
    return 1.0 if name in _GELU and not fine else cut(numel, FINE_GRAIN if fine else GRAIN)


ELEMENTWISE = Family(
    name="elementwise",
    sizes=_LOOP_SIZES,
    flags=_LOOP_FLAGS,
    read=_read_elementwise,
    cpu_amounts=("restarts", "blocks", "strided"),
    count=_count_elementwise,
    shared=True,
    earlier=chunks,
)

RANDOM = Family(
    name="random",
    ops=aten(
        "bernoulli bernoulli_ normal normal_ uniform uniform_ rand randn rand_like randn_like native_dropout "
        "native_dropout_backward dropout dropout_backward randint randint_like randperm multinomial exponential_ "
        "random_"
    ),
    sizes=_LOOP_SIZES,
    flags=_LOOP_FLAGS,
    read=_read_elementwise,
)

_ROW_SIZES = {"numel": "elements", "row": "elements of one row, the innermost dimension"}
_ROW_FLAGS = {"strided": "the operand is not contiguous"}


def _read_rows(call: OpCall) -> Features:
    """FLOPs: 12 per element."""
    source = max(call.inputs, key=lambda t: t.numel)
    inner = source.shape[-1] if source.shape else 1
    return Features(12.0 * source.numel, (source.numel, inner), (float(not source.contiguous),))


SOFTMAX = Family(
    name="softmax",
    ops=aten("_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data _safe_softmax"),
    sizes=_ROW_SIZES,
    flags=_ROW_FLAGS,
    read=_read_rows,
    count=lambda w, threads: of_busiest(cut(w.sizes[0], FINE_GRAIN), threads, flops=w.flops, bytes=w.bytes),
    shared=True,
    earlier=chunks,
)


def _count_sorting(work: Work, _threads: int) -> dict[str, float]:
    numel, row = work.sizes[:2]
    return {"compared": numel * math.log2(2.0 + row)}


SORTING = Family(
    name="sorting",
    ops=aten(
        "sort argsort topk cumsum cumprod cummax cummin logcumsumexp median kthvalue unique _unique2 unique_dim"
    ),
    sizes=_ROW_SIZES,
    flags=_ROW_FLAGS,
    read=_read_rows,
    amounts=("compared",),
    count=_count_sorting,
)


def _read_normalization(call: OpCall) -> Features:
    """FLOPs: 8 per element."""
    source = max(call.inputs, key=lambda t: t.numel)
    flags = float(not source.contiguous), float(has_true_argument(call))
    return Features(8.0 * source.numel, (source.numel, _channels(call, source)), flags)


def _channels(call: OpCall, source: TensorSpec) -> int:
    """Elements of the weight, which may be missing, and may have the last dimensions of the operand."""
    weight = max((t.numel for t in call.inputs if len(t.shape) == 1), default=0)
    if not weight:
        whole = (t for t in call.inputs if 1 < len(t.shape) < len(source.shape))
        weight = max((t.numel for t in whole if t.shape == source.shape[-len(t.shape) :]), default=0)
    return weight or max((t.numel for t in call.outputs if len(t.shape) == 1), default=source.shape[-1])


def _count_normalization(work: Work, threads: int) -> dict[str, float]:
    return of_busiest(pieces_of_normalization(work), threads, flops=work.flops, bytes=work.bytes)


def pieces_of_normalization(work: Work) -> float:
    """Cores share channels where each has statistics of the whole batch, else rows."""
    numel, channels = work.sizes[:2]
    return max(channels if "batch_norm" in work.op else numel / max(channels, 1.0), 1.0)


NORMALIZATION = Family(
    name="normalization",
    ops=aten(
        "native_batch_norm native_batch_norm_backward native_layer_norm native_layer_norm_backward native_group_norm "
        "native_group_norm_backward cudnn_batch_norm cudnn_batch_norm_backward _native_batch_norm_legit "
        "_native_batch_norm_legit_no_training _fused_rms_norm _fused_rms_norm_backward batch_norm_backward "
        "_batch_norm_with_update"
    ),
    sizes={"numel": "elements", "channels": "elements of the weight: channels, or the width of a row"},
    flags={"strided": "the operand is not contiguous", "training": "statistics are taken of the batch"},
    read=_read_normalization,
    count=_count_normalization,
    shared=True,
    earlier=chunks,
)


def _read_pooling(call: OpCall) -> Features:
    """FLOPs: 1 per element of the larger side."""
    large = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
    small = call.outputs[0] if not call.op.endswith("backward") else call.inputs[0]
    window = max(large.numel / max(small.numel, 1), 1.0)
    return Features(float(large.numel), (large.numel, small.numel, window), (float(not large.contiguous),))


def _count_pooling(work: Work, _threads: int) -> dict[str, float]:
    """Elements of all windows."""
    _, pooled, window = work.sizes[:3]
    return {"compared": pooled * window}


POOLING = Family(
    name="pooling",
    ops=aten(
        "max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d "
        "_adaptive_avg_pool2d_backward max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool3d "
        "avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward max_pool1d avg_pool1d "
        "_adaptive_avg_pool3d _adaptive_avg_pool3d_backward upsample_nearest2d upsample_nearest2d_backward "
        "upsample_bilinear2d upsample_bilinear2d_backward upsample_nearest1d upsample_nearest1d_backward "
        "upsample_linear1d"
    ),
    sizes={
        "numel": "elements of the larger side",
        "pooled": "elements of the forward's result",
        "window": "elements that share one result",
    },
    flags={"strided": "the larger side is not contiguous"},
    read=_read_pooling,
    amounts=("compared",),
    count=_count_pooling,
)

#: Columns of 4 bytes that are never split where columns are reduced: 128 bytes of a row
#: (``parallel_dim_reduction`` in ATen/native/TensorIteratorReduce.cpp).
COLUMNS_TOGETHER = 32
#: Ops that keep such columns together. Of all others, such as variances, any column is a piece of its own
#: (``foreach_reduced_elt`` in ATen/TensorIterator.cpp).
_TOGETHER = aten("sum mean nansum prod amax amin any all")
#: Columns that one vector register sums, that the four registers of the fastest loop sum, and that are summed by four
#: single additions (``cascade_sum`` in ATen/native/cpu/SumKernel.cpp).
IN_A_VECTOR, IN_FOUR_VECTORS, SINGLE = 8, 32, 4
#: Bytes that a core's own caches hold, roughly. More than that is not in them, whatever the exact size.
CORE_CACHE = 2 << 20
#: Bytes of a cache line, and bytes of a number.
LINE, ITEM = 64, 4


def _read_reduction(call: OpCall) -> Features:
    """FLOPs: 1 per element read."""
    source = max(call.inputs, key=lambda t: t.numel, default=None)
    if source is None:
        return Features(0.0, (0, 0), (0.0, 0.0))
    out = largest(call.outputs)
    kept = bool(call.outputs) and bool(source.shape) and bool(call.outputs[0].shape)
    inner_survives = kept and out > 1 and call.outputs[0].shape[-1] == source.shape[-1] > 1
    return Features(float(source.numel), (source.numel, out), (float(inner_survives), float(not source.contiguous)))


def _count_reduction(work: Work, threads: int) -> dict[str, float]:
    """What one core and all of them do of a reduction, which is cut by its results, or where it has one by its operand.

    ``row_results`` are rows that are each reduced to one number: starting and ending a row costs more than its elements
    do. There are none where the reduction runs over an outer dimension, so that the innermost one survives, nor where
    there are as many results as elements, as in the gradient of a loss.
    """
    numel, results = work.sizes[:2]
    by_columns = bool(work.flags[0])
    rows = results if 1 < results < numel and not by_columns else 0.0
    return {
        "row_results": rows,
        **of_busiest(pieces_of_reduction(work), threads, additions=work.flops, read_bytes=work.bytes, results=rows),
        "column_fetches": column_fetches(work, threads) if by_columns else 0.0,
        "column_refetches": column_refetches(work, threads) if by_columns else 0.0,
    }


def pieces_of_reduction(work: Work) -> float:
    """Pieces of a reduction: of its results, or where it has but one of its operand."""
    numel, results = work.sizes[:2]
    if numel < GRAIN:
        return 1.0
    if not 1 < results < numel:
        return cut(numel)
    by_columns = bool(work.flags[0])
    return max(results // COLUMNS_TOGETHER, 1) if by_columns and op_of(work.op) in _TOGETHER else results


def _columns(work: Work, threads: int) -> float:
    """Columns of the busiest thread: the last one, which also gets what the others leave of their last bundle."""
    numel, columns = work.sizes[:2]
    if threads < 2 or numel < GRAIN:
        return columns
    others = columns * (threads - 1) // threads
    return columns - others // COLUMNS_TOGETHER * COLUMNS_TOGETHER


def _passes(columns: float) -> tuple[float, float]:
    """Passes over all rows: those that sum 32 columns at once, and those that sum fewer."""
    if columns < IN_A_VECTOR:
        return 0, columns // SINGLE + columns % SINGLE
    fours, rest = divmod(columns, IN_FOUR_VECTORS)
    return fours, rest // IN_A_VECTOR + rest % IN_A_VECTOR


def column_fetches(work: Work, threads: int) -> float:
    """Fetches where columns are summed.

    Columns that fill four vector registers take one pass over the rows, those left over that fill one register another,
    and each one after that a pass of its own: 31 columns take seven times as long as 32.
    """
    numel, columns = work.sizes[:2]
    return numel / columns * sum(_passes(_columns(work, threads)))


def column_refetches(work: Work, threads: int) -> float:
    """Bytes that are fetched again where columns are summed that no core's own cache holds.

    Every pass goes through all rows and fetches whole lines of them: 40,000 rows of 20 columns, 3 MB, are fetched six
    times, once for 16 columns and once for each of the other four.
    """
    numel, columns = work.sizes[:2]
    rows, mine = numel / columns, _columns(work, threads)
    whole, thin = _passes(mine)
    fetched = whole * ITEM * IN_FOUR_VECTORS + thin * min(LINE, ITEM * columns)
    # Passes for fewer than 32 columns go through the same two lines of every row. A cache that is walked over and over
    # keeps next to nothing once the lines are a third larger than it.
    beyond = 3.0 * (rows * min(2 * LINE, ITEM * columns) / CORE_CACHE - 1.0)
    return min(max(beyond, 0.0), 1.0) * rows * max(fetched - ITEM * mine, 0.0)


def _earlier_reduction(work: Work, threads: int) -> dict[str, float]:
    """Amounts of earlier versions, which counted cores otherwise: of no op, fewer than 64 columns were shared."""
    numel, results = work.sizes[:2]
    by_columns = bool(work.flags[0])
    pieces = min(cut(numel), max(results // COLUMNS_TOGETHER, 1)) if by_columns else cut(numel)
    cores = min(max(threads, 1), pieces)
    return {
        **chunks(work, threads),
        "core_flops": work.flops / cores,
        "core_bytes": work.bytes / cores,
        "column_loads": column_fetches(work, 1) if by_columns else 0.0,
    }


REDUCTION = Family(
    name="reduction",
    ops=aten(
        "sum mean amax amin max min argmax argmin var std var_mean std_mean norm linalg_vector_norm prod any all "
        "logsumexp nansum count_nonzero nll_loss_forward nll_loss_backward mse_loss mse_loss_backward smooth_l1_loss "
        "nll_loss2d_forward nll_loss2d_backward binary_cross_entropy l1_loss"
    ),
    sizes={"numel": "elements read", "outputs": "elements of the result"},
    flags={
        "inner_survives": "the reduction runs over an outer dimension, which is another access pattern",
        "strided": "the operand is not contiguous",
    },
    read=_read_reduction,
    amounts=("row_results",),
    count=_count_reduction,
    shared=True,
    earlier=_earlier_reduction,
)
