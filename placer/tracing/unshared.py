"""What a forked process shares with its parent outside of its own memory, and what other threads keep alive there.

And who watches it: debuggers and profilers of the parent, which nobody answers in a child.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import fcntl
import gc
import mmap
import os
import stat
import sys
import threading
import weakref
from itertools import accumulate, chain, repeat, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

#: More shared memory than this, in bytes, is not copied, and no more of files: it cannot be written to.
_MOST_COPIED = 1 << 28
_MAP_FIXED = 0x10


def let_nobody_watch() -> None:
    """No tracer, profiler or debugger of the parent is called, and ``breakpoint()`` does nothing."""
    for module in (sys, threading):
        module.settrace(None)
        module.setprofile(None)
    sys.breakpointhook = lambda *_, **__: None
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12
    if monitoring is None:
        return
    for tool in range(6):
        if monitoring.get_tool(tool) is not None:  # it stays in use: a step may switch its own events on
            monitoring.set_events(tool, monitoring.events.NO_EVENTS)
            for event in set(vars(monitoring.events).values()) - {monitoring.events.NO_EVENTS}:
                monitoring.register_callback(tool, event, None)  # as events of single functions stay on


def own_files(keep: int) -> None:
    """Pipes and sockets, all but ``keep``, and files open for writing alone lead nowhere. Other files are the child's.

    What is read from a pipe would be missing in the parent, as would the lines of a file that both read.
    """
    nowhere, left = os.open(os.devnull, os.O_RDWR), _MOST_COPIED
    for number in _open_files():
        if number not in (keep, nowhere) and (number <= 2 or _is_shared(number)):
            replacement, copied_bytes = _own_file(number, left) if number > 2 else (None, 0)
            os.dup2(nowhere if replacement is None else replacement, number, inheritable=False)
            left -= copied_bytes
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


def _own_file(number: int, most_copied: int) -> tuple[int | None, int]:
    """The same file at the same offset, which it does not share; None where it is no file or not open for reading.

    One that is open for writing too is a copy, which is gone with the child. Where it has more than ``most_copied``
    bytes, and outside of Linux, it can only be read. Returns the number of bytes copied as well.
    """
    try:
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or flags & os.O_WRONLY:
            return None, 0
        copied = bool(flags & os.O_RDWR) and status.st_size <= most_copied and sys.platform == "linux"
        opened = _copied_file(number, flags & os.O_APPEND) if copied else os.open(_path_of(number), os.O_RDONLY)
        if not copied and not os.path.samestat(os.fstat(opened), status):  # another one has its name by now
            os.close(opened)
            return None, 0
        os.lseek(opened, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
    except OSError:  # no name leads to it, or there is no room for a copy
        return None, 0
    return opened, status.st_size if copied else 0


def _copied_file(number: int, append: int) -> int:
    """A file in memory that has the same contents. Temporary files take a lock, which another thread may have held."""
    copy = os.memfd_create("copy")
    place = 0
    while part := os.pread(number, 1 << 20, place):
        place += os.write(copy, part)
    fcntl.fcntl(copy, fcntl.F_SETFL, fcntl.fcntl(copy, fcntl.F_GETFL) | append)
    return copy


def _path_of(number: int) -> str:
    """A path that opens the file of a descriptor anew."""
    if hasattr(fcntl, "F_GETPATH"):  # macOS, where it is 1024 bytes at most
        return os.fsdecode(fcntl.fcntl(number, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return f"/proc/self/fd/{number}"


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
    with contextlib.closing(mmap.mmap(-1, size)) as private:
        address = ctypes.addressof(ctypes.c_char.from_buffer(private))
        ctypes.memmove(address, start, size)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        library.mmap(start, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        ctypes.memmove(start, address, size)


# --- what other threads keep ------------------------------------------------------------------------------------------

# Python ends the states of all other threads in a child, and with them what nothing else refers to: values of
# ``threading.local`` and of context variables, and the exception that a thread handles. Their finalizers would run
# there: they remove the parent's temporary files, say goodbye to its servers, or wait for threads that a child has not.

_Address = ctypes.c_void_p
#: The first words of a thread's state (CPython's ``PyThreadState``).
_State = _Address * 64


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C API, called without letting another thread run."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_interpreter = _python("PyInterpreterState_Get", _Address)
_first_state = _python("PyInterpreterState_ThreadHead", _Address, _Address)
_next_state = _python("PyThreadState_Next", _Address, _Address, ctypes.c_int)  # the number is not looked at
_own_state = _python("PyThreadState_Get", _Address)
_own_dictionary = _python("PyThreadState_GetDict", _Address)
_add_reference = _python("Py_NewRef", _Address, _Address)
_drop_reference = _python("Py_DecRef", None, _Address)


class Held(NamedTuple):
    """References to what other threads keep for themselves."""

    addresses: list[int]
    exceptions: dict[int, Any]


def hold() -> Held:
    """Refer to what all threads keep for themselves, until ``let_go``. A child never lets go."""
    exceptions = sys._current_exceptions()
    collects = gc.isenabled()
    gc.disable()  # a collection runs Python code
    try:
        return Held(_referred_to() if len(_KEPT_AT) > 1 else [], exceptions)
    finally:
        if collects:
            gc.enable()


def let_go(held: Held) -> None:
    """What a thread kept that has ended meanwhile is finalized here."""
    for address in held.addresses:
        _drop_reference(address)


def _referred_to() -> list[int]:
    """The objects that the states of all threads refer to, each with one more reference.

    All happens in the last call, and inside of it only in functions written in C: no thread starts or ends meanwhile.
    """
    states = takewhile(bool, accumulate(chain(map(_first_state, [_interpreter()]), repeat(0)), _next_state))
    objects = chain.from_iterable(map(itemgetter(*_KEPT_AT), map(_State.from_address, states)))
    return list(map(_add_reference, filter(None, objects)))


def _kept_at() -> list[int]:
    """Which words of a state refer to what its thread keeps: those that do so in the state of this thread.

    They differ between versions of Python. Since 3.13 values of ``threading.local`` end with an object of their own.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return []  # threads start and end at any time
    context, ends = contextvars.copy_context(), _ends_of_locals()
    addresses = {_own_dictionary(), id(context), *map(id, ends)}
    return context.run(lambda: [at for at, word in enumerate(_State.from_address(_own_state())) if word in addresses])


def _ends_of_locals() -> list[object]:
    """The objects of this thread with which its values of ``threading.local`` end."""
    local = threading.local()
    local.value = None
    containers = [held for held in gc.get_referents(local) if isinstance(held, dict | set)]
    keys = chain.from_iterable(containers)
    return [key() if isinstance(key, weakref.ref) else key for key in keys]


_KEPT_AT = _kept_at()
