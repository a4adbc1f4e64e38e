"""What pricing has to know about a family of ops, and how PyTorch shares an op's loops among the cores of a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from placer.pricing.work import Work, operand_bytes
from placer.tracing import OpCall

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

#: float32 numbers in a vector register of AVX-512, and channels in a block of oneDNN's layouts.
REGISTER = 16


def padded(size: float) -> float:
    """How much larger a dimension is once it is rounded up to whole registers: a factor of 1 or more."""
    return math.ceil(size / REGISTER) * REGISTER / size if size > 0 else 1.0


def ragged(*sizes: int) -> float:
    """1.0 where one of these is no multiple of a register; a size of 1 has kernels of its own and does not count."""
    return float(any(size % REGISTER for size in sizes if size > 1))


class Features(NamedTuple):
    """What a family reads off an op call: its FLOPs, and the values of its sizes and flags in their order."""

    flops: float
    sizes: tuple[float, ...] = ()
    flags: tuple[float, ...] = ()


def aten(names: str) -> frozenset[str]:
    """Ops of PyTorch's own library, given their names separated by spaces."""
    return frozenset(f"aten::{name}" for name in names.split())


@dataclass(frozen=True, slots=True)
class Family:
    """A family of ops: the ops in it, the features they are compared by, and what their time is proportional to.

    Its ops are those in ``ops``, and those whose names begin with one of ``prefixes`` and that no family lists.
    ``sizes`` and ``flags`` map the name of each feature to its meaning; ``read`` gives their values for a call.
    ``moved_bytes`` are the bytes a call reads and writes.

    ``amounts`` are what, besides FLOPs and bytes, the time of such an op is proportional to.
    ``cpu_amounts`` are more of them, on which only a CPU's kernels spend time. The few samples of an accelerator would
    charge to them what its FLOPs cost.
    ``sharing`` says how the cores of a CPU share the op's loops; None where the kernels see to that themselves.
    ``earlier`` are amounts, given the number of threads, that only profiles of earlier versions have costs for. They
    are not fitted any more.

    ``evaluates`` says whether a call evaluates a function of each element, which takes longer than fetching it.
    ``variant`` names a group of shapes that run in kernels of their own; they are priced as another op.
    ``dispatches`` is how many ops a call stands for at the least: more than one where an op is kept whole.
    """

    name: str
    read: Callable[[OpCall], Features]
    ops: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    sizes: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    moved_bytes: Callable[[OpCall], float] = operand_bytes
    amounts: Mapping[str, Callable[[Work], float]] = field(default_factory=dict)
    cpu_amounts: Mapping[str, Callable[[Work], float]] = field(default_factory=dict)
    sharing: Sharing | None = None
    earlier: Mapping[str, Callable[[Work, int], float]] = field(default_factory=dict)
    evaluates: Callable[[Work], bool] = lambda _: False
    variant: Callable[[Work], str] = lambda _: ""
    dispatches: Callable[[Work], int] = lambda _: 1

    def size(self, work: Work, name: str) -> float:
        """One of the family's own sizes of an op."""
        return work.sizes[list(self.sizes).index(name)]

    def flag(self, work: Work, name: str) -> float:
        """One of the family's own flags of an op."""
        return work.flags[list(self.flags).index(name)]
