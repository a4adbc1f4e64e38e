"""Opens files that should be regular ones: a pipe or a device under that name would be waited for, maybe for ever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: So that nothing is waited for while a file is opened. Neither changes what is done to a regular one.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # the latter is Windows'


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the file, opened with ``flags``. Raises OSError, also for what is no regular file."""
    descriptor = os.open(path, flags | _FLAGS, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def read_regular(path: Path, at_most: int = -1) -> bytes:
    """The content of the file, or its first ``at_most`` bytes. Raises OSError, also for what is no regular file."""
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(at_most)
