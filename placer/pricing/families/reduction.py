"""Reductions: sums, means, extrema, variances, norms and losses.

A reduction over the innermost dimension walks its operand row by row; one over an outer dimension takes many columns
at once.
"""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.families.sharing import CHUNKS, GRAIN, Sharing, grains
from placer.pricing.kernels import op_of
from placer.pricing.operands import largest
from placer.pricing.reuse_distance import CORE_CACHE
from placer.pricing.work import Work
from placer.tracing import OpCall

#: Columns of 4 bytes that are never split where columns are reduced: 128 bytes of a row
#: (``parallel_dim_reduction`` in ATen/native/TensorIteratorReduce.cpp).
COLUMNS_TOGETHER = 32
#: Ops that keep such columns together. Of all others, such as variances, any column is a piece of its own
#: (``foreach_reduced_elt`` in ATen/TensorIterator.cpp).
_TOGETHER = aten("sum mean nansum prod amax amin any all")
#: Columns that one vector register sums, that the four registers of the fastest loop sum, and that are summed by four
#: single additions (``cascade_sum`` in ATen/native/cpu/SumKernel.cpp).
IN_A_VECTOR, IN_FOUR_VECTORS, SINGLE = 8, 32, 4
#: Bytes of a cache line, and bytes of a number.
LINE, ITEM = 64, 4


def _read(call: OpCall) -> Features:
    """FLOPs: 1 per element read."""
    source = max(call.inputs, key=lambda t: t.numel, default=None)
    if source is None:
        return Features(0.0, (0, 0), (0.0, 0.0))
    out = largest(call.outputs)
    kept = bool(call.outputs) and bool(source.shape) and bool(call.outputs[0].shape)
    inner_survives = kept and out > 1 and call.outputs[0].shape[-1] == source.shape[-1] > 1
    return Features(float(source.numel), (source.numel, out), (float(inner_survives), float(not source.contiguous)))


def _sums_columns(work: Work) -> bool:
    """Whether the reduction runs over an outer dimension, so that the innermost one survives."""
    return bool(work.flags[0])


def pieces(work: Work) -> float:
    """Pieces that the reduction is cut into: results, where there are several; of one result, parts of the operand."""
    numel, results = work.sizes[:2]
    if numel < GRAIN:
        return 1.0
    if not 1 < results < numel:
        return grains(work)
    if _sums_columns(work) and op_of(work.op) in _TOGETHER:
        return max(results // COLUMNS_TOGETHER, 1)
    return results


def row_results(work: Work) -> float:
    """Rows that are each reduced to one number: starting and ending a row costs more than its elements do.

    0 where there are as many results as elements, as in the gradient of a loss.
    """
    numel, results = work.sizes[:2]
    return 0.0 if _sums_columns(work) or not 1 < results < numel else results


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
    """Fetches where columns are summed; 0 elsewhere.

    Columns that fill four vector registers take one pass over the rows, those left over that fill one register another,
    and each one after that a pass of its own: 31 columns take seven times as long as 32.
    """
    if not _sums_columns(work):
        return 0.0
    numel, columns = work.sizes[:2]
    return numel / columns * sum(_passes(_columns(work, threads)))


def column_refetches(work: Work, threads: int) -> float:
    """Bytes that are fetched again where columns are summed that no core's own cache holds; 0 elsewhere.

    Every pass goes through all rows and fetches whole lines of them: 40,000 rows of 20 columns, 3 MB, are fetched six
    times, once for 16 columns and once for each of the other four.
    """
    if not _sums_columns(work):
        return 0.0
    numel, columns = work.sizes[:2]
    rows, mine = numel / columns, _columns(work, threads)
    whole, thin = _passes(mine)
    fetched = whole * ITEM * IN_FOUR_VECTORS + thin * min(LINE, ITEM * columns)
    # Passes for fewer than 32 columns go through the same two lines of every row. A cache that is walked over and over
    # keeps next to nothing once the lines are a third larger than it.
    beyond = 3.0 * (rows * min(2 * LINE, ITEM * columns) / CORE_CACHE - 1.0)
    return min(max(beyond, 0.0), 1.0) * rows * max(fetched - ITEM * mine, 0.0)


def _earlier_cores(work: Work, threads: int) -> float:
    """Cores that share a reduction, as earlier versions counted them: of no op, fewer than 64 columns."""
    found = grains(work)
    if _sums_columns(work):
        found = min(found, max(work.sizes[1] // COLUMNS_TOGETHER, 1))
    return min(max(threads, 1), found)


FAMILY = Family(
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
    read=_read,
    amounts={"row_results": row_results},
    sharing=Sharing(
        pieces,
        {"additions": lambda w: w.flops, "read_bytes": lambda w: w.bytes, "results": row_results},
        busiest={"column_fetches": column_fetches, "column_refetches": column_refetches},
    ),
    earlier={
        **CHUNKS,
        "core_flops": lambda w, threads: w.flops / _earlier_cores(w, threads),
        "core_bytes": lambda w, threads: w.bytes / _earlier_cores(w, threads),
        "column_loads": lambda w, _: column_fetches(w, 1),
    },
)
