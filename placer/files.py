"""Files at the paths that a user names: written whole or not at all, and never over something of his.

Only regular files are opened: a pipe or a device under that name would be waited for, maybe for ever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

from placer.errors import PlacerError

#: So that nothing is waited for while a file is opened. Neither changes what is done to a regular one.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # the latter is Windows'


def check_free(path: Path) -> None:
    """Raise PlacerError where a file with content is at ``path``. An empty file, a pipe, a terminal are free."""
    if path.is_file() and path.stat().st_size:
        raise PlacerError(f"{path} exists, and is not overwritten: name another file, or remove it")


def write_new(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, which has to be free. Raises PlacerError where it is not, OSError where it cannot."""
    check_free(path)
    if path.exists() and not path.is_file():
        path.write_bytes(data)
    else:
        replace_file(path, data)


def replace_file(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a reader, or a crash, sees the old content or the new, never a part.

    The data goes to a unique temporary file beside the target, is forced to the disk, then renamed over it. Parent
    folders are created, a symbolic link is followed. Raises OSError; then the old file is untouched and no temporary
    file is left behind.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    # os.open rather than tempfile: the file gets the permissions the user's umask asks for, so it can be shared.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(temporary, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # the rename itself; Windows and some network drives cannot
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
