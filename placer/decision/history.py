"""Decisions taken and step times seen on this machine: JSON lines, newest last, bounded.

For ``placer explain`` without a target, and for decisions that use what earlier runs saw (``observed.py``). Both do
without it, so writing and reading it never fail: on a read-only or full disk the history is not kept.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from placer.profile import data_home, replace_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

log = logging.getLogger(__name__)

#: When the file outgrows this, the older half is dropped. One entry may take at most a quarter of it.
MAX_BYTES = 1_000_000
#: Seconds in which another process has written its entry; it takes far less.
PATIENCE = 1.0
#: Step times outlive decisions, which are longer and many: of the dropped half, the newest of them are kept, in at most
#: a quarter of the file.
_STEPS = b'"kind":"steps"'


def history_path() -> Path:
    """The history file; it need not exist."""
    return data_home() / "history.jsonl"


def record(entry: dict[str, Any]) -> str | None:
    """Append one JSON-serialisable entry, with the time (``"time"``, ISO 8601 UTC). Never raises.

    Returns None, or in one line why nothing can be written where the history is.
    """
    try:
        stamped = {"time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), **entry}
        line = json.dumps(stamped, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        log.debug("history entry not kept: %s", error)
        return None
    if len(line) > MAX_BYTES // 4:
        log.debug("history entry of %d bytes not kept: the limit is %d", len(line), MAX_BYTES // 4)
        return None
    try:
        _append(history_path(), line)
    except (OSError, ValueError, RuntimeError) as error:
        # ValueError: a path no system takes; RuntimeError: no home directory. Training goes on without a history.
        log.debug("history entry not kept: %s", error)
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    return None


def last(n: int = 1) -> list[dict[str, Any]]:
    """The last ``n`` entries, newest last; fewer, or none, where there are no more. Damaged lines are skipped."""
    if n < 1:
        return []
    try:
        with history_path().open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 2 * MAX_BYTES))
            lines = file.read(2 * MAX_BYTES).splitlines()
    except (OSError, RuntimeError) as error:
        log.debug("no history: %s", error)
        return []
    entries: list[dict[str, Any]] = []
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict):
            entries.append(entry)
            if len(entries) == n:
                break
    return entries[::-1]


def lines_with(text: str) -> list[bytes]:
    """The lines that contain ``text``, oldest first, not parsed: looking for one workload must cost next to nothing."""
    try:
        content = history_path().read_bytes()
    except (OSError, RuntimeError) as error:
        log.debug("no history: %s", error)
        return []
    wanted = text.encode()
    found, position = [], content.find(wanted)
    while position >= 0:
        start = content.rfind(b"\n", 0, position) + 1
        end = content.find(b"\n", position)
        end = len(content) if end < 0 else end
        found.append(content[start:end])
        position = content.find(wanted, end)
    return found


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path):
        # One write to a descriptor opened for appending: entries don't mix, also where files cannot be locked.
        with _opened(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            os.write(descriptor, line)
            size = os.fstat(descriptor).st_size
        if size > MAX_BYTES:
            replace_file(path, _trimmed(path.read_bytes()))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Meanwhile, no other process writes the history: what it appends while the file is replaced would be lost.

    Raises OSError where another one does not come to an end.
    """
    with _opened(path.with_suffix(".lock"), os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)) as descriptor:
        end = time.monotonic() + PATIENCE
        while not _locked(descriptor):
            if time.monotonic() > end:
                raise OSError(errno.EAGAIN, "another process does not end writing the history")
            time.sleep(0.001)
        try:
            yield
        finally:  # said, not left to closing: a process that was forked meanwhile has the descriptor too
            with contextlib.suppress(OSError):
                _unlock(descriptor)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Whether the lock is had now. It counts as had where the file system has no locks."""
    try:
        _lock(descriptor)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # what systems say of one that is held
    return True


if sys.platform == "win32":

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _trimmed(content: bytes) -> bytes:
    """The newer half, after the newest step times of the older one."""
    cut = content.find(b"\n", len(content) - MAX_BYTES // 2) + 1
    room, steps = MAX_BYTES // 4, []
    for line in reversed(content[:cut].splitlines(keepends=True)):
        if _STEPS in line and len(line) <= room:
            steps.append(line)
            room -= len(line)
    return b"".join(reversed(steps)) + content[cut:]
