"""How PyTorch's loops go through an op's elements and share them among the CPU's cores, and what is left for one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

#: Prefix of amounts that profiles fitted before ``per_core`` know instead: no longer fitted.
EARLIER = "chunk_"
#: What the names of amounts begin with that only matter where several cores share an op.
PER_CORE = "core_"

_FINE = frozenset(
    f"aten::{name}"
    for name in ("acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "expm1", "i0", "lgamma", "log", "log10",
                 "log1p", "log2", "log_sigmoid_forward", "logit", "sin", "sqrt", "tan", "tanh", "trunc")
)  # fmt: skip
_GELU = frozenset(("aten::gelu", "aten::gelu_backward"))


@dataclass(frozen=True)
class Sharing:
    """How a family's ops are shared: loops cut into so many ``pieces``, in which the ``amounts`` are done.

    An op is so many such ``loops``, one after the other, each of which has to call in the other cores.
    """

    pieces: Callable[[Work], float]
    amounts: Mapping[str, Callable[[Work], float]] = field(
        default_factory=lambda: {"flops": lambda w: w.flops, "bytes": lambda w: w.bytes}
    )
    loops: Callable[[Work], float] = lambda _: 1.0


def _cut(elements: float, grain: int) -> float:
    """Parts that a loop over so many elements is cut into."""
    return max(math.ceil(elements / grain), 1)


def grains(work: Work) -> float:
    """Parts that a loop over all elements is cut into."""
    return _cut(work.sizes[0], GRAIN)


def fine_grains(work: Work) -> float:
    """The same where a loop is shared out early on."""
    return _cut(work.sizes[0], FINE_GRAIN)


def added_in_turns(work: Work) -> float:
    """Elements that cores add to a table that all of them write to: each in an atomic operation of its own.

    Shared among cores, gradients of ``x[index]`` take three times as long per element as on one
    (``cpu_atomic_add_float`` in ATen/native/cpu/IndexKernel.cpp).
    """
    return work.sizes[0] if work.op == "aten::index_put" and work.sizes[0] >= GRAIN else 0.0


#: What one of very many threads would do: ``EARLIER``'s amounts.
CHUNKS: Mapping[str, Callable[[Work], float]] = {
    f"{EARLIER}flops": lambda w: w.flops / grains(w),
    f"{EARLIER}bytes": lambda w: w.bytes / grains(w),
}


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
    """Rows that are each reduced to a number of its own: beginning and ending one costs more than its elements do.

    None where there are as many results as elements, as in the gradient of a loss.
    """
    numel, results = work.sizes[:2]
    return 0.0 if sums_columns(work) or not 1 < results < numel else results


def state_pieces(work: Work) -> float:
    """The same of the gates of a recurrent layer: one time step's numbers at a time."""
    return _cut(work.sizes[1] * work.sizes[3], GRAIN)


def time_steps(work: Work) -> float:
    """Time steps of all layers of a recurrent op."""
    return work.sizes[0] * work.sizes[4]


def gated(work: Work) -> float:
    """Numbers that pass through the gates of a recurrent op."""
    return time_steps(work) * work.sizes[1] * work.sizes[3]


def per_core(work: Work, sharing: Sharing, threads: int) -> dict[str, float]:
    """What the busiest of ``threads`` cores does of an op.

    Work is shared evenly among as many cores as there are pieces (``at::parallel_for``). ``core_shared`` are the loops
    in which more than one takes part: calling the others in costs some microseconds.
    """
    cores = min(max(threads, 1), sharing.pieces(work))
    found = {f"{PER_CORE}{name}": read(work) / cores for name, read in sharing.amounts.items()}
    return {**found, f"{PER_CORE}shared": sharing.loops(work) if cores > 1 else 0.0}
