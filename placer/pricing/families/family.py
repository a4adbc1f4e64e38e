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


def cut(elements: float, grain: int = GRAIN) -> float:
    """Pieces that a loop over so many elements is cut into."""
    return max(math.ceil(elements / grain), 1)


def of_busiest(pieces: float, threads: int, loops: float = 1.0, **amounts: float) -> dict[str, float]:
    """What the busiest of ``threads`` cores does of an op, whose loops are cut into ``pieces``.

    Work is shared evenly among as many cores as there are pieces (``at::parallel_for``). The last amount counts the
    ``loops`` that more than one core takes part in: waking the others costs some microseconds.
    """
    cores = min(max(threads, 1), pieces)
    of_a_core = {f"{PER_CORE}{name}": amount / cores for name, amount in amounts.items()}
    return {**of_a_core, f"{PER_CORE}shared": loops if cores > 1 else 0.0}


def chunks(work: Work, _threads: int) -> dict[str, float]:
    """One piece of an op, whatever the number of threads: profiles of earlier versions have costs for it instead."""
    pieces = cut(work.sizes[0])
    return {"chunk_flops": work.flops / pieces, "chunk_bytes": work.bytes / pieces}


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
    charge to them what its FLOPs cost. ``count`` gives the values of both, by name, of an op run by so many threads;
    where the family's loops are ``shared`` among cores, also what the busiest one does.
    ``earlier`` gives amounts that only profiles of earlier versions have costs for. They are not fitted any more.
    """

    name: str
    read: Callable[[OpCall], Features]
    ops: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    sizes: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    moved_bytes: Callable[[OpCall], float] = operand_bytes
    amounts: tuple[str, ...] = ()
    cpu_amounts: tuple[str, ...] = ()
    count: Callable[[Work, int], dict[str, float]] = lambda _work, _threads: {}
    shared: bool = False
    earlier: Callable[[Work, int], dict[str, float]] = lambda _work, _threads: {}
