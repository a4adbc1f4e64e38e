"""How a reduction walks its operand: rows one by one, columns many at once, and what of it the busiest core does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from placer.pricing.layouts import op
from placer.pricing.sharing import CORE_CACHE, GRAIN, Sharing, grains

if TYPE_CHECKING:
    from placer.pricing.operators import Work

#: Columns of 4 bytes that are never torn apart where columns are reduced: 128 bytes of a row
#: (``parallel_dim_reduction`` in ATen/native/TensorIteratorReduce.cpp).
COLUMNS_TOGETHER = 32
#: Ops that keep such columns together; of all others, such as variances, any column is a piece of its own
#: (``foreach_reduced_elt`` in ATen/TensorIterator.cpp).
_TOGETHER = frozenset(f"aten::{name}" for name in ("sum", "mean", "nansum", "prod", "amax", "amin", "any", "all"))
#: Columns summed at once by one vector register, by the four of the fastest loop, and by four single additions
#: (``cascade_sum`` in ATen/native/cpu/SumKernel.cpp).
IN_A_VECTOR, IN_FOUR_VECTORS, SINGLE = 8, 32, 4
#: Bytes that are fetched together, and bytes of a number.
LINE, ITEM = 64, 4


def sums_columns(work: Work) -> bool:
    """Whether a reduction runs over an outer dimension, the innermost one surviving."""
    return bool(work.flags[0])


def pieces(work: Work) -> float:
    """Parts that a reduction is cut into: results, where there are several; of one, parts of what is reduced."""
    numel, results = work.sizes[:2]
    if numel < GRAIN:
        return 1.0
    if not 1 < results < numel:
        return grains(work)
    if sums_columns(work) and op(work.op) in _TOGETHER:
        return max(results // COLUMNS_TOGETHER, 1)
    return results


def row_results(work: Work) -> float:
    """Rows that are each reduced to a number of its own: beginning and ending one costs more than its elements do.

    None where there are as many results as elements, as in the gradient of a loss.
    """
    numel, results = work.sizes[:2]
    return 0.0 if sums_columns(work) or not 1 < results < numel else results


def _columns(work: Work, threads: int) -> float:
    """Columns of the busiest of so many threads: the last, which gets what the others leave of their last bundle."""
    numel, columns = work.sizes[:2]
    if threads < 2 or numel < GRAIN:
        return columns
    others = columns * (threads - 1) // threads
    return columns - others // COLUMNS_TOGETHER * COLUMNS_TOGETHER


def _passes(columns: float) -> tuple[float, float]:
    """Times that all rows are gone through: for 32 columns at once, and for fewer."""
    if columns < IN_A_VECTOR:
        return 0, columns // SINGLE + columns % SINGLE
    fours, rest = divmod(columns, IN_FOUR_VECTORS)
    return fours, rest // IN_A_VECTOR + rest % IN_A_VECTOR


def column_fetches(work: Work, threads: int) -> float:
    """Times that something is fetched where columns are summed; 0 elsewhere.

    As many columns as fill four vector registers take one turn, those left over as many as fill one, and what is left
    of them each one of its own: 31 columns take seven times as long as 32.
    """
    if not sums_columns(work):
        return 0.0
    numel, columns = work.sizes[:2]
    return numel / columns * sum(_passes(_columns(work, threads)))


def column_refetches(work: Work, threads: int) -> float:
    """Bytes that are fetched once more where columns are summed that no core's own cache holds; 0 elsewhere.

    Each turn goes through all rows, and fetches whole lines of them: 40,000 rows of 20 columns, 3 MB, are fetched six
    times, for 16 columns and for each of the other four.
    """
    if not sums_columns(work):
        return 0.0
    numel, columns = work.sizes[:2]
    rows, mine = numel / columns, _columns(work, threads)
    whole, thin = _passes(mine)
    fetched = whole * ITEM * IN_FOUR_VECTORS + thin * min(LINE, ITEM * columns)
    # Turns for fewer than 32 columns go through the same two lines of every row. A cache that is gone through again and
    # again keeps next to nothing once they are a third larger than it.
    beyond = 3.0 * (rows * min(2 * LINE, ITEM * columns) / CORE_CACHE - 1.0)
    return min(max(beyond, 0.0), 1.0) * rows * max(fetched - ITEM * mine, 0.0)


SHARING = Sharing(
    pieces,
    {"additions": lambda w: w.flops, "read_bytes": lambda w: w.bytes, "results": row_results},
    busiest={"column_fetches": column_fetches, "column_refetches": column_refetches},
)


def _cores_before(work: Work, threads: int) -> float:
    """Cores that profiles fitted before took to share a reduction: of no op, fewer than 64 columns."""
    found = grains(work)
    if sums_columns(work):
        found = min(found, max(work.sizes[1] // COLUMNS_TOGETHER, 1))
    return min(max(threads, 1), found)


#: What profiles fitted before know instead.
EARLIER: Mapping[str, Callable[[Work, int], float]] = {
    "core_flops": lambda w, threads: w.flops / _cores_before(w, threads),
    "core_bytes": lambda w, threads: w.bytes / _cores_before(w, threads),
    "column_loads": lambda w, _: column_fetches(w, 1),
}
