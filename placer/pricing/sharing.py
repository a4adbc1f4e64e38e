"""How PyTorch's loops go through an op's elements and share them among the CPU's cores, and what is left for one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placer.pricing.operators import Work

#: Elements below which loops stay on one core (``at::internal::GRAIN_SIZE``): a cliff in every thread count.
GRAIN = 32768
#: The same of functions taken from a vector math library, of softmax, and of the two that have a threshold of their own
#: (ATen/native/cpu: UnaryOpsKernel.cpp, SoftMaxKernel.cpp and Activation.cpp).
FINE_GRAIN, GELU_GRAIN = 2048, 16384
#: Bytes that a core's own caches hold, about: of more, the rest is not there either way.
CORE_CACHE = 2 << 20
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

    An op is so many such ``loops``, one after the other, each of which has to call in the other cores. ``busiest`` is
    what the busiest of so many threads does where a share is not like another.
    """

    pieces: Callable[[Work], float]
    amounts: Mapping[str, Callable[[Work], float]] = field(
        default_factory=lambda: {"flops": lambda w: w.flops, "bytes": lambda w: w.bytes}
    )
    loops: Callable[[Work], float] = lambda _: 1.0
    busiest: Mapping[str, Callable[[Work, int], float]] = field(default_factory=dict)


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


#: What one of very many threads would do: profiles fitted before ``per_core`` know it instead.
CHUNKS: Mapping[str, Callable[[Work, int], float]] = {
    "chunk_flops": lambda w, _: w.flops / grains(w),
    "chunk_bytes": lambda w, _: w.bytes / grains(w),
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
    busiest = {name: read(work, threads) for name, read in sharing.busiest.items()}
    return {**found, **busiest, f"{PER_CORE}shared": sharing.loops(work) if cores > 1 else 0.0}
