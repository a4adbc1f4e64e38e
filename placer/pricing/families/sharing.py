"""How PyTorch shares an op's loops among the cores of a CPU, and what the busiest core does of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from placer.pricing.work import Work

#: Elements below which a loop stays on one core (``at::internal::GRAIN_SIZE``), whatever the number of threads.
GRAIN = 32768
#: The same of softmax and of functions from a vector math library (SoftMaxKernel.cpp and UnaryOpsKernel.cpp in
#: ATen/native/cpu).
FINE_GRAIN = 2048
#: Prefix of the amounts that only count where several cores share an op.
PER_CORE = "core_"


@dataclass(frozen=True)
class Sharing:
    """How a family's ops are shared: their loops are cut into ``pieces``, among which the ``amounts`` are divided.

    ``loops`` is how many such loops an op runs, one after the other; each has to wake the other cores.
    ``busiest`` are amounts of the busiest thread, given the number of threads, where shares are uneven.
    """

    pieces: Callable[[Work], float]
    amounts: Mapping[str, Callable[[Work], float]] = field(
        default_factory=lambda: {"flops": lambda w: w.flops, "bytes": lambda w: w.bytes}
    )
    loops: Callable[[Work], float] = lambda _: 1.0
    busiest: Mapping[str, Callable[[Work, int], float]] = field(default_factory=dict)


def cut(elements: float, grain: int) -> float:
    """Pieces that a loop over so many elements is cut into."""
    return max(math.ceil(elements / grain), 1)


def grains(work: Work) -> float:
    """Pieces that a loop over all elements is cut into."""
    return cut(work.sizes[0], GRAIN)


def fine_grains(work: Work) -> float:
    """The same for a loop that is shared from ``FINE_GRAIN`` elements on."""
    return cut(work.sizes[0], FINE_GRAIN)


def per_core(work: Work, sharing: Sharing, threads: int) -> dict[str, float]:
    """What the busiest of ``threads`` cores does of an op.

    Work is shared evenly among as many cores as there are pieces (``at::parallel_for``). ``core_shared`` counts the
    loops that more than one core takes part in: waking the others costs some microseconds.
    """
    cores = min(max(threads, 1), sharing.pieces(work))
    found = {f"{PER_CORE}{name}": read(work) / cores for name, read in sharing.amounts.items()}
    busiest = {name: read(work, threads) for name, read in sharing.busiest.items()}
    return {**found, **busiest, f"{PER_CORE}shared": sharing.loops(work) if cores > 1 else 0.0}


#: One piece of an op, whatever the number of threads: profiles of earlier versions have costs for it instead.
CHUNKS: Mapping[str, Callable[[Work, int], float]] = {
    "chunk_flops": lambda w, _: w.flops / grains(w),
    "chunk_bytes": lambda w, _: w.bytes / grains(w),
}
