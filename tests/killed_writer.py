"""A process that replaces a file, and kills itself before one of its file operations."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from placer.profile.store import replace_file


def replaced(target: Path, data: bytes, nth: int) -> int:
    """Let a child replace a file, and kill it before its N-th call of the system or of a file's method (0: never).

    Returns the number of calls that there were, or, negative, the signal that ended it.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count = 0

    def count_calls(frame: Any, event: str, function: Any) -> None:
        nonlocal count
        if event == "c_call" and (
            function.__module__ in ("posix", "_io") or isinstance(getattr(function, "__self__", None), io.IOBase)
        ):
            count += 1
            if count == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.setprofile(count_calls)
        replace_file(target, data)
        sys.setprofile(None)
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
        traceback.print_exc()
    finally:
        os._exit(count)
