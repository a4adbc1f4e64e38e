"""How PyTorch's loops share an op among the CPU's cores, and what is left for one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.operators import Work

#: Elements below which loops stay on one core (``at::internal::GRAIN_SIZE``): a cliff in every thread count.
GRAIN = 32768
#: The same of functions taken from a vector math library, of softmax, and of the two that have a threshold of their own
#: (ATen/native/cpu: UnaryOpsKernel.cpp, SoftMaxKernel.cpp and Activation.cpp).
FINE_GRAIN, GELU_GRAIN = 2048, 16384
#: Columns of 4 bytes that are never torn apart where columns are summed: 128 bytes of a row
#: (``parallel_dim_reduction`` in ATen/native/TensorIteratorReduce.cpp).
COLUMNS_TOGETHER = 32
#: Columns summed at once by one vector register, by the four of the fastest loop, and by four single additions
#: (``cascade_sum`` in ATen/native/cpu/SumKernel.cpp).
IN_A_VECTOR, IN_FOUR_VECTORS, SINGLE = 8, 32, 4

#: Amounts that profiles fitted before ``per_core`` know instead, told by their prefix: no longer fitted.
EARLIER = "chunk_"
#: What the names of amounts begin with that only matter where several cores share an op.
PER_CORE = "core_"

_FINE = frozenset(
    f"aten::{name}"
    for name in ("acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "expm1", "i0", "lgamma", "log", "log10",
                 "log1p", "log2", "log_sigmoid_forward", "logit", "sin", "sqrt", "tan", "tanh", "trunc")
)  # fmt: skip
_GELU = frozenset(("aten::gelu", "aten::gelu_backward"))


def grains(work: Work) -> float:
    """Parts that a loop over all elements is cut into."""
    return max(math.ceil(work.sizes[0] / GRAIN), 1)


def fine_grains(work: Work) -> float:
    """The same where a loop is shared out early on."""
    return max(math.ceil(work.sizes[0] / FINE_GRAIN), 1)


def elementwise_pieces(work: Work) -> float:
    """The same of an elementwise op, by the grain of its kernel."""
    name = work.op.rstrip("_")
    if name in _GELU:
        return fine_grains(work) if work.sizes[0] > GELU_GRAIN else 1.0
    return fine_grains(work) if name in _FINE else grains(work)


def normalization_pieces(work: Work) -> float:
    """The same of a normalization: its channels where each has statistics of the whole batch, else its rows."""
    numel, channels = work.sizes[:2]
    return max(channels if "batch_norm" in work.op else numel / max(channels, 1.0), 1.0)


def reduction_pieces(work: Work) -> float:
    """The same of a reduction: where columns are summed whole rows are too many, and the columns are shared out."""
    if not sums_columns(work):
        return grains(work)
    return min(grains(work), max(work.sizes[1] // COLUMNS_TOGETHER, 1))


def sums_columns(work: Work) -> bool:
    """Whether a reduction runs over an outer dimension, the innermost one surviving."""
    return bool(work.flags[0])


def column_loads(work: Work) -> float:
    """Times that something is fetched where columns are summed; 0 elsewhere.

    As many columns as fill four vector registers take one turn, those left over as many as fill one, and what is left
    of them each one of its own: 31 columns take seven times as long as 32.
    """
    if not sums_columns(work):
        return 0.0
    numel, columns = work.sizes[:2]
    if columns < IN_A_VECTOR:
        return numel / columns * (columns // SINGLE + columns % SINGLE)
    fours, rest = divmod(columns, IN_FOUR_VECTORS)
    return numel / columns * (fours + rest // IN_A_VECTOR + rest % IN_A_VECTOR)


def row_results(work: Work) -> float:
    """Rows that are each reduced to a number of its own: beginning and ending one costs more than its elements do."""
    return 0.0 if sums_columns(work) or work.sizes[1] <= 1 else work.sizes[1]


def state_pieces(work: Work) -> float:
    """The same of the gates of a recurrent layer: one time step's numbers at a time."""
    return max(math.ceil(work.sizes[1] * work.sizes[3] / GRAIN), 1)


def gated(work: Work) -> float:
    """Numbers that pass through the gates of a recurrent layer."""
    length, batch, _, hidden, stacked = work.sizes[:5]
    return length * batch * hidden * stacked


def per_core(work: Work, pieces: Callable[[Work], float], threads: int) -> dict[str, float]:
    """What the busiest of ``threads`` cores does of an op whose loops are cut into ``pieces``.

    Work is shared evenly among as many cores as there are pieces (``at::parallel_for``); ``core_shared`` is 1 where
    more than one takes part: calling the others in costs some microseconds. Of a recurrent layer, gates are shared so;
    its products by libraries that see to it themselves.
    """
    cores = min(max(threads, 1), pieces(work))
    shared = float(cores > 1)
    if work.family == "recurrent":
        return {f"{PER_CORE}gated": gated(work) / cores, f"{PER_CORE}shared": shared * work.sizes[0] * work.sizes[4]}
    chunks = grains(work)
    return {
        f"{PER_CORE}flops": work.flops / cores,
        f"{PER_CORE}bytes": work.bytes / cores,
        f"{PER_CORE}shared": shared,
        f"{EARLIER}flops": work.flops / chunks,
        f"{EARLIER}bytes": work.bytes / chunks,
    }
