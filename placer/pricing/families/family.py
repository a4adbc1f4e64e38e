"""What pricing has to know about a family of ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from placer.pricing.families.sharing import Sharing
from placer.pricing.operands import operand_bytes
from placer.pricing.work import Work
from placer.tracing import OpCall


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
