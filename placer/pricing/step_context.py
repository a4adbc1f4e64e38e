"""Where an op stands in its step: what of its code and operands the caches still hold when it runs.

A core fetches an op's code again when other code has evicted it since the op last ran. Of two small ops that are alike
in all else, one in a loop costs half of one that stands alone among large ops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placer.pricing.reuse_distance import reuse_distances
from placer.tracing import Trace

#: Features every family has besides its own (see ``Context``). ``kept``: the result outlives its phase, so its memory
#: is fresh. ``repeated``: an operand is expanded (``operands.repeats``).
CONTEXT_SIZES = ("footprint", "kinds", "previous", "reuse_distance")
CONTEXT_FLAGS = ("kept", "recording", "repeated", "evicted", "first")


@dataclass(frozen=True, slots=True)
class Context:
    """What an op call does not say about the step it stands in.

    - ``footprint_bytes``: parameters, gradients, optimizer state and activations. It decides whether operands that the
      step before touched are still in a cache.
    - ``recording``: whether autograd builds its graph around forward ops.
    - ``previous_bytes``: what the op before moved through the caches. The framework's code around a tiny op runs
      several times slower after a large one.
    - ``reuse_bytes``: the reuse distance of the op's own code, in bytes moved.
    - ``updates``: tensors that the optimizer updates. What a step does once is shared among them.
    - ``kinds``: different ops of the step. The code of a few stays in the nearest caches.
    - ``evicted``: share of the Python functions around forward ops whose code is evicted, and the op's own with it.
    - ``first``: whether no op of the same name ran before in the step. The code of the first is fetched in every step.
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

    @property
    def sizes(self) -> tuple[float, ...]:
        """In the order of ``CONTEXT_SIZES``."""
        return float(self.footprint_bytes), float(self.kinds), float(self.previous_bytes), float(self.reuse_bytes)


class Place(NamedTuple):
    """What differs between equal ops in different places of a step. Bytes are rounded to powers of two."""

    previous_bytes: float
    reuse_bytes: float
    first: bool


def places(ops: Sequence[tuple[str, float]]) -> list[Place]:
    """The place of each op of a step, given (name, bytes moved) of all ops in order. Steps follow each other."""
    previous = next((nbytes for _, nbytes in reversed(ops) if nbytes), 0.0)
    seen: set[str] = set()
    result = []
    for (op, nbytes), distance in zip(ops, reuse_distances(ops), strict=True):
        result.append(Place(octave(previous), octave(distance), op not in seen))
        seen.add(op)
        previous = nbytes or previous
    return result


def octave(nbytes: float) -> float:
    """Rounded to a power of two, 0 below 1. Calls whose places differ by less are priced once."""
    return 2.0 ** round(math.log2(nbytes)) if nbytes >= 1.0 else 0.0
