"""Asks this process's ``malloc`` where it stands, and settles it; glibc only, everywhere else nothing is known.

Nothing is read from memory that is not ours: blocks are taken, never written to, and given back.
"""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

#: glibc's defaults, in bytes: blocks above the first are mapped; the threshold never grows beyond the last.
FIRST_THRESHOLD, LAST_THRESHOLD = 128 << 10, 32 << 20
#: Sizes tried in turn grow by this factor: how closely the threshold is known, and how far asking may raise it.
_STEP = 2**0.25


@dataclass(frozen=True)
class HeapState:
    """Where a process stands: from which size on it maps blocks, and how many bytes its heap holds ready (bytes)."""

    threshold: int = FIRST_THRESHOLD
    free: int = 0


class _Info(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33: bytes by where they are."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                     "keepcost")
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _glibc() -> Any:
    """The C library, or None where it is not glibc or another allocator stands in for its own."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - only there in glibc
        library.mallinfo2.restype = _Info
        library.malloc.restype = ctypes.c_void_p
        library.malloc.argtypes = [ctypes.c_size_t]
        library.free.argtypes = [ctypes.c_void_p]
    except (AttributeError, OSError):
        return None
    # jemalloc and the like leave glibc's own books empty.
    return library if library.mallinfo2().uordblks > 0 else None


def state() -> HeapState | None:
    """Where this process's heap stands now; None where that cannot be asked."""
    library = _glibc()
    if library is None:
        return None
    free = int(library.mallinfo2().fordblks)
    size = FIRST_THRESHOLD
    while size < LAST_THRESHOLD:
        # A block the heap has room for is not mapped, however large; neither is one below the threshold.
        if size > free and _is_mapped(library, size):
            return HeapState(size, free)
        size = int(size * _STEP)
    return HeapState(LAST_THRESHOLD, free)


def settle() -> None:
    """Bring the heap to where long-lived processes end up: only the largest blocks are mapped from now on."""
    library = _glibc()
    if library is None:
        return
    free = int(library.mallinfo2().fordblks)
    for size in (LAST_THRESHOLD // 2, LAST_THRESHOLD - (64 << 10)):
        if size > free:
            _is_mapped(library, size)


def _is_mapped(library: Any, size: int) -> bool:
    before = library.mallinfo2().hblkhd
    block = library.malloc(size)
    mapped = bool(library.mallinfo2().hblkhd > before)
    library.free(block)  # freeing a mapped block is what raises the threshold
    return mapped
