"""Reuse distance: how much ran since an op last ran, and so from how far away its code has to come back.

The reuse distance is that of Mattson et al., "Evaluation techniques for storage hierarchies", 1970. Here it is counted
over a step that repeats, in bytes moved or in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: Bytes that a core's own caches hold, roughly. More than that is not in them, whatever the exact size.
CORE_CACHE = 2 << 20
#: log2 of the bytes up to which an op's code stays in the nearest cache, and of those after which no cache holds it.
NEAREST, NONE = 14.0, 24.0


def reuse_distances(ops: Sequence[tuple[str, float]]) -> list[float]:
    """The reuse distance of each op of a step, given (name, bytes or seconds) of all ops in order.

    It is the sum over the ops between this one and the last one of the same name. Steps follow each other: the first
    op of a name follows the last one of the step before.
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


def reuse_share(reuse_bytes: float) -> float:
    """How far out the code of an op is evicted at this reuse distance: 0 (nearest cache) to 1 (no cache holds it)."""
    return min(max((math.log2(1.0 + reuse_bytes) - NEAREST) / (NONE - NEAREST), 0.0), 1.0)
