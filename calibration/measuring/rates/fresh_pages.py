"""What a byte costs more on pages that the system has just given and takes back afterwards."""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Callable

import torch

#: Bytes that are taken, written and given back: few enough to be counted many times.
FRESH_BYTES = 16 << 20
#: Memory of this process alone, as ``malloc`` asks for it.
_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


class FreshPages:
    """Counts the cost of fresh pages at several moments and keeps the least.

    A virtual machine gets memory that it has not used lately from its host first. That takes ten times as long, and
    lasts longer than one count. ``timed`` returns the seconds of a function.
    """

    def __init__(self, timed: Callable[[Callable[[], object]], float]) -> None:
        self._timed = timed
        self._warm = torch.empty(FRESH_BYTES // 4)
        self._on_fresh = self._on_warm = math.inf

    def count(self) -> None:
        """Count once more."""
        self._on_fresh = min(self._on_fresh, self._timed(_write_fresh))
        self._on_warm = min(self._on_warm, self._timed(lambda: self._warm.fill_(1.0)))

    def seconds_per_byte(self) -> float:
        """Of the fastest count so far."""
        return max(self._on_fresh - self._on_warm, 0.0) / FRESH_BYTES


def _write_fresh() -> None:
    with contextlib.closing(mmap.mmap(-1, FRESH_BYTES, **_PRIVATE)) as pages:
        torch.frombuffer(pages, dtype=torch.float32).fill_(1.0)
