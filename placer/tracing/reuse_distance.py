"""How many entries of a repeated sequence of functions find their code evicted from a core's own caches.

The reuse distance of an entry is the number of different other functions entered since the last entry of the same
function: the LRU stack distance of Mattson et al., "Evaluation techniques for storage hierarchies" (1970). An entry
that finds its code and data still cached costs a third of one that finds them evicted.
"""

from __future__ import annotations

#: Reuse distances, in functions: up to ``NEAR`` all of a function is still cached, from ``FAR`` on none of it. What
#: networks of ordinary layers have (17) still fits; today's cores differ too little to matter.
NEAR, FAR = 15, 25
#: Functions that the loop around a step enters before the next step begins (gradient mode, timers, batches): the least.
AROUND = 8


class LruStack:
    """The last ``FAR`` different functions by their last entry, and the evictions found so far."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._stack: list[int] = []  # the latest at the end
        self._evicted = 0.0

    def enter(self, function: int) -> None:
        """Count the next entry of the sequence. ``function``: any number that identifies it."""
        stack = self._stack
        try:
            place = stack.index(function)
        except ValueError:  # its distance is at least FAR, or this is its first entry
            self._evicted += function in self._seen
            self._seen.add(function)
            if len(stack) == FAR:
                del stack[0]
        else:
            distance = len(stack) - 1 - place
            if distance > NEAR:
                self._evicted += _evicted_share(distance)
            del stack[place]
        stack.append(function)

    @property
    def evicted(self) -> float:
        """Entries that find their code evicted; one in between counts in part.

        The sequence repeats, so the first entry of a function has a distance too: all other functions, and the loop's.
        """
        functions = len(self._seen)
        return self._evicted + functions * _evicted_share(functions - 1 + AROUND)


def _evicted_share(distance: int) -> float:
    """How much of a function is evicted at this reuse distance, 0 to 1."""
    return min(max((distance - NEAR) / (FAR - NEAR), 0.0), 1.0)
