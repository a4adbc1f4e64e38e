"""Where this process's ``malloc`` stands: read, without asking it for memory; glibc only, else nothing is known.

What decides (*mallopt(3)*) is in a structure of the C library that has no name outside of it. It is found by what it
holds, among the variables of the file that ``malloc`` is in. Another allocator's file has nothing of the kind.
"""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

#: glibc's defaults, in bytes: blocks above the first are mapped; the threshold never grows beyond the last.
FIRST_THRESHOLD, LAST_THRESHOLD = 128 << 10, 32 << 20
#: ``struct malloc_par`` begins with the trim threshold, this many bytes of padding, and the threshold that is looked
#: for. The bytes that are mapped now follow within some words.
_TOP_PAD, _WORDS = 128 << 10, 16
#: A line of ``/proc/self/maps``: from and to where, how it may be accessed, and the file.
_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)$", re.MULTILINE)


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


def state() -> HeapState | None:
    """Where this process's heap stands now; None where that is not known. Changes nothing."""
    found = _glibc()
    return None if found is None else HeapState(found[1].value, int(found[0].mallinfo2().fordblks))


def settle() -> None:
    """Bring the heap to where long-lived processes end up: only the largest blocks are mapped from now on."""
    if (found := _glibc()) is not None:
        for size in (LAST_THRESHOLD // 2, LAST_THRESHOLD - (64 << 10)):
            found[0].free(found[0].malloc(size))  # freeing a mapped block is what raises the threshold


@lru_cache(maxsize=1)
def _glibc() -> tuple[Any, ctypes.c_size_t] | None:
    """The C library and its threshold, where it is glibc and no other allocator stands in for its own."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Info
        library.malloc.restype = ctypes.c_void_p
        library.malloc.argtypes = [ctypes.c_size_t]
        library.free.argtypes = [ctypes.c_void_p]
        threshold = _threshold(library)
    except (AttributeError, OSError):
        return None
    return None if threshold is None else (library, threshold)


def _threshold(library: Any) -> ctypes.c_size_t | None:
    mapped, size = library.mallinfo2().hblkhd, ctypes.sizeof(ctypes.c_size_t)
    for start, end in _variables(ctypes.cast(library.malloc, ctypes.c_void_p).value or 0):
        words = (ctypes.c_size_t * ((end - start) // size)).from_address(start)
        for i in range(len(words) - _WORDS):
            trim, pad, threshold = words[i : i + 3]
            if pad == _TOP_PAD and trim in (FIRST_THRESHOLD, 2 * threshold) and mapped in words[i + 3 : i + _WORDS]:
                return ctypes.c_size_t.from_address(start + (i + 2) * size)
    return None


def _variables(function: int) -> list[tuple[int, int]]:
    """Where the variables are of the file that has a function at this address."""
    found = _MAPPING.findall(Path("/proc/self/maps").read_text(encoding="utf-8"))
    maps = [(int(start, 16), int(end, 16), access, path) for start, end, access, path in found]
    own = {path for start, end, _, path in maps if start <= function < end}
    return [(start, end) for start, end, access, path in maps if path in own and access == "rw-p"]
