"""Decisions taken and step times recorded on this machine: JSON lines, newest last, bounded.

For ``placer explain`` without a target, and for decisions that use what earlier runs saw. Both do without it, so
writing and reading it never fail: on a read-only or full disk the history is not kept.
"""

from __future__ import annotations

import json
import logging
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from placer.profile import data_home, open_regular, read_regular, replace_file

log = logging.getLogger(__name__)

#: When the file outgrows this, the older half is dropped. One entry may take at most a quarter of it.
MAX_BYTES = 1_000_000
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
        path = history_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0) as file:
            file.write(line)  # at once: the entries of several processes do not mix
            size = file.tell()
        if size > MAX_BYTES:  # what another process appends in this moment is lost
            replace_file(path, _trimmed(read_regular(path)))
    except (OSError, ValueError, RuntimeError) as error:
        # ValueError: a path no system takes; RuntimeError: no home directory. Training goes on without a history.
        log.debug("history entry not kept: %s", error)
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    return None


def last(n: int = 1) -> list[dict[str, Any]]:
    """The last ``n`` entries, newest last; fewer, or none, where there are no more. Damaged lines are skipped."""
    entries: list[dict[str, Any]] = []
    for line in reversed(_content().splitlines()):
        if len(entries) >= n:
            break
        entry = parsed(line)
        if entry is not None:
            entries.append(entry)
    return entries[::-1]


def parsed(line: bytes) -> dict[str, Any] | None:
    """The entry of a line; None for a damaged one."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def lines_with(*texts: str) -> list[bytes]:
    """The lines that contain one of ``texts``, oldest first, not parsed: looking for a step costs next to nothing."""
    content = _content()
    wanted = [text.encode() for text in texts if text.encode() in content]
    if not wanted:
        return []
    return [line for line in content.splitlines() if any(text in line for text in wanted)]


def _content() -> bytes:
    """The end of the file, of twice the size that it is trimmed to at most."""
    try:
        with os.fdopen(open_regular(history_path()), "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 2 * MAX_BYTES, 0))
            return file.read()
    except (OSError, RuntimeError) as error:
        log.debug("no history: %s", error)
        return b""


def _trimmed(content: bytes) -> bytes:
    """The newer half, after the newest step times of the older one."""
    cut = content.find(b"\n", len(content) - MAX_BYTES // 2) + 1
    room, steps = MAX_BYTES // 4, []
    for line in reversed(content[:cut].splitlines(keepends=True)):
        if _STEPS in line and len(line) <= room:
            steps.append(line)
            room -= len(line)
    return b"".join(reversed(steps)) + content[cut:]
