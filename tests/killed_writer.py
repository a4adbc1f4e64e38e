"""A process that replaces a file, and kills itself before one of its file operations."""

from __future__ import annotations

import builtins
import io
import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from placer.profile.store import replace_file

#: Everything the os module offers to change a file or a folder.
OPERATIONS = (
    "open", "write", "fsync", "close", "mkdir", "rename", "replace", "link", "symlink", "unlink", "remove", "truncate",
    "ftruncate", "chmod",
)  # fmt: skip
#: Writes a content is cut into, so that a kill can fall between two of them.
PIECES = 4


class Killer:
    """Counts operations; the N-th does not happen any more."""

    def __init__(self, nth: int) -> None:
        self.nth, self.count = nth, 0

    def operation(self) -> None:
        self.count += 1
        if self.count == self.nth:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.operation()
            return function(*args, **kwargs)

        return call

    def in_pieces(self, opens: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            file = opens(*args, **kwargs)
            return Pieces(file, self) if file.writable() else file

        return call


class Pieces:
    """A binary file whose every piece of a write reaches the system on its own."""

    def __init__(self, file: BinaryIO, killer: Killer) -> None:
        self.file, self.killer = file, killer

    def __enter__(self) -> Pieces:
        return self

    def __exit__(self, *_: object) -> None:
        self.killer.operation()
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        size = -(-len(data) // PIECES)
        for start in range(0, len(data), size):
            self.killer.operation()
            self.file.write(data[start : start + size])
            self.file.flush()
        return len(data)


def replaced(target: Path, data: bytes, nth: int) -> int:
    """Let a child replace a file, and kill it before its N-th operation (0: never).

    Returns the number of operations that there were, or, negative, the signal that ended it.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count = 0
    try:
        killer = Killer(nth)
        for name in OPERATIONS:
            setattr(os, name, killer.watched(getattr(os, name)))
        # os.fdopen, pathlib and shutil open files by it as well.
        io.open = builtins.open = killer.in_pieces(killer.watched(io.open))  # type: ignore[assignment]
        replace_file(target, data)
        count = killer.count
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
        traceback.print_exc()
    finally:
        os._exit(count)
