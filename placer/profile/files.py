"""Where placer keeps its files, and how a file is replaced without ever being half written."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def data_home() -> Path:
    """The folder that holds profiles and the history: ``$PLACER_HOME``, else the user's data directory."""
    if home := os.environ.get("PLACER_HOME"):
        # Not Path.expanduser, which raises for the home of a user that is not there: choose() would, too.
        return Path(os.path.expanduser(home))  # noqa: PTH111
    from platformdirs import user_data_path  # only here, so that PLACER_HOME works without it

    return Path(user_data_path("placer", appauthor=False))


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
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can (Windows and some network drives cannot)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
