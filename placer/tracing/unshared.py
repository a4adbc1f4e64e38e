"""What a forked process shares with its parent outside of its own memory, and how it gets its own."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import stat
import sys
from pathlib import Path

#: More shared memory than this, in bytes, is not copied: it cannot be written to.
_MOST_COPIED = 1 << 28
_MAP_FIXED = 0x10


def own_files(keep: int) -> None:
    """Pipes and sockets, all but ``keep``, and files open for writing lead nowhere; other files have their own offset.

    What is read from a pipe would be missing in the parent, as would the lines of a file that both read.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in _open_files():
        if number not in (keep, nowhere) and (number <= 2 or _is_shared(number)):
            replacement = _reopened(number) if number > 2 else None
            os.dup2(nowhere if replacement is None else replacement, number, inheritable=False)
            if replacement is not None:
                os.close(replacement)
    sys.stdin = sys.stdout = sys.stderr = os.fdopen(nowhere, "r+", encoding="utf-8")


def _open_files() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208 - numbers, not paths
    except OSError:
        return [0, 1, 2]


def _is_shared(number: int) -> bool:
    """Whether a descriptor is anything but a device: those of accelerators stay, as their drivers hold them."""
    try:
        mode = os.fstat(number).st_mode
    except OSError:  # the listing's own
        return False
    return not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISDIR(mode))


def _reopened(number: int) -> int | None:
    """The file once more, at the same offset, for reading only; None where it is no file or not open for reading."""
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode) or fcntl.fcntl(number, fcntl.F_GETFL) & os.O_WRONLY:
            return None
        again = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
        os.lseek(again, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
    except OSError:  # not Linux
        return None
    return again


def own_memory() -> None:
    """Copy shared memory (batches of data loaders, models that processes share, files mapped for writing).

    Where there is too much of it, writing to it ends the process. Memory of devices stays.
    """
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return
    left = _MOST_COPIED
    for line in lines:
        span, access, _, _, _, *path = line.split(maxsplit=5)
        if access != "rw-s" or _is_a_device(path[0] if path else ""):
            continue
        start, end = (int(bound, 16) for bound in span.split("-"))
        size = end - start
        if size <= left:
            left -= size
            _copy(start, size)
        else:
            ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.PROT_READ)


def _is_a_device(path: str) -> bool:
    return path.startswith(("/dev/", "anon_inode:")) and not path.startswith(("/dev/shm/", "/dev/zero"))


def _copy(start: int, size: int) -> None:
    """Put private memory with the same contents in the place of ``size`` bytes at ``start``."""
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    with contextlib.closing(mmap.mmap(-1, size)) as kept:
        address = ctypes.addressof(ctypes.c_char.from_buffer(kept))
        ctypes.memmove(address, start, size)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        library.mmap(start, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        ctypes.memmove(start, address, size)
