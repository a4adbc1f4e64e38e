"""Where an op stands in its step: what of its code and operands the caches still hold when it runs.

A core fetches an op's code anew when others have evicted it since the op ran last: of two small ops that are alike in
all else, one in a loop costs half of what one does that stands alone among large ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placer.tracing import Trace

#: Features every family has besides its own, and where they come from (see Context).
CONTEXT_SIZES = ("footprint", "kinds", "previous", "reuse_distance")
CONTEXT_FLAGS = ("kept", "recording", "repeated", "evicted", "first")

#: log2 of the bytes up to which an op's code stays in the nearest cache, and of those after which no cache holds it.
NEAREST, NONE = 14.0, 24.0


@dataclass(frozen=True, slots=True)
class Context:
    """What an op cannot see of the step it stands in.

    ``footprint_bytes`` (parameters, gradients, optimizer state, activations) tells whether operands touched one step
    ago are still in a cache; ``recording`` whether autograd builds its graph around forward ops; ``previous_bytes``
    what the op before moved through the caches: the framework's code around a tiny op runs several times slower after a
    large one; ``reuse_bytes`` what was moved since an op of the same name ran last, in this step or the one before:
    that displaces the op's own code. ``updates`` are the tensors among which an optimizer's step shares what it does
    once, ``kinds`` the different ops of the step: where they are few, their code stays in the nearest caches.
    ``evicted`` is the share of Python functions around forward ops that find their code evicted, and the op's own
    with it; ``first`` is whether no op before had the same name: its code is fetched again in every step.
    """

    footprint_bytes: int
    recording: bool
    previous_bytes: float = 0.0
    reuse_bytes: float = 0.0
    updates: int = 1
    kinds: int = 1
    evicted: float = 0.0
    first: bool = False

    @classmethod
    def of(cls, trace: Trace) -> Context:
        """What all ops of a step have in common."""
        updates = sum(call.phase == "optimizer" for call in trace.calls)
        return cls(
            footprint_bytes=trace.peak_bytes,
            recording=trace.mode == "train",
            updates=max(updates, 1),
            kinds=max(len({call.op for call in trace.calls}), 1),
            evicted=min(trace.evicted_calls / max(trace.python_calls, 1), 1.0),
        )

    def at(self, place: Place) -> Context:
        """The same for the op at ``place``."""
        return replace(self, previous_bytes=place.previous_bytes, reuse_bytes=place.reuse_bytes, first=place.first)

    @property
    def sizes(self) -> tuple[float, ...]:
        """In the order of ``CONTEXT_SIZES``."""
        return float(self.footprint_bytes), float(self.kinds), float(self.previous_bytes), float(self.reuse_bytes)


@dataclass(frozen=True, slots=True)
class Place:
    """What differs between equal ops in different places of a step; bytes are rounded to powers of two."""

    previous_bytes: float
    reuse_bytes: float
    first: bool


def places(ops: Sequence[tuple[str, float]]) -> list[Place]:
    """The place of each op of a step, given (name, bytes moved) of all, in order. Steps follow each other."""
    previous = next((nbytes for _, nbytes in reversed(ops) if nbytes), 0.0)
    seen: set[str] = set()
    result = []
    for (op, nbytes), distance in zip(ops, reuse_distances(ops), strict=True):
        result.append(Place(octave(previous), octave(distance), op not in seen))
        seen.add(op)
        previous = nbytes or previous
    return result


def reuse_distances(ops: Sequence[tuple[str, float]]) -> list[float]:
    """For each op of a step, what others took since one of its name ended, given (name, bytes or seconds) of all.

    Steps follow each other: the first op of a name comes after all that followed the last one in the step before.
    """
    now = -math.fsum(amount for _, amount in ops)
    ended: dict[str, float] = {}
    for op, amount in ops:
        now += amount
        ended[op] = now
    now = 0.0
    result = []
    for op, amount in ops:
        result.append(now - ended[op])
        now += amount
        ended[op] = now
    return result


def octave(nbytes: float) -> float:
    """Rounded to a power of two, 0 below 1: calls that differ in less are priced once."""
    return 2.0 ** round(math.log2(nbytes)) if nbytes >= 1.0 else 0.0


def reuse_share(reuse_bytes: float) -> float:
    """0 to 1: from how far away an op's code has to come back, by what was moved since the op ran last."""
    return min(max((math.log2(1.0 + reuse_bytes) - NEAREST) / (NONE - NEAREST), 0.0), 1.0)
