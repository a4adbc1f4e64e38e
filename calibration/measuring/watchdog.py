"""Ends what hangs, so that the run goes on: a benchmark in this process, or a command with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from placer.errors import CalibrationError

#: Seconds that a killed process may take to end.
KILLED = 5.0


class HungError(CalibrationError):
    """Something did not come back in time and was ended."""


@contextlib.contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Raise HungError in the body after ``seconds`` of real time, and again every ``seconds`` until it leaves.

    Works in the main thread of POSIX systems and is no limit elsewhere. Another alarm that is set already is put off,
    and put back with the time it has left; one that is due earlier is left alone. Native code that never returns to the
    interpreter is not interrupted: only ending the process does that.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    theirs, interval = signal.getitimer(signal.ITIMER_REAL)
    if 0.0 < theirs <= seconds:
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise HungError(f"{what} did not come back within {seconds:g} s")

    handler = signal.signal(signal.SIGALRM, over)
    started = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if theirs > 0.0:
            signal.setitimer(signal.ITIMER_REAL, max(theirs - (time.monotonic() - started), 1e-3), interval)


def run_limited(command: Sequence[str], *, seconds: float, log: Path | None = None) -> str:
    """Standard output of a command. After ``seconds`` of real time, it and its children are killed.

    ``log``: where all that it says is kept. Raises HungError where it takes longer, and CalibrationError (with the last
    line it wrote) where it fails.
    """
    # Files, not pipes: a grandchild that lives on would keep a pipe open, and its reader waiting.
    with (
        tempfile.TemporaryFile() if log is None else log.open("w+b") as output,
        tempfile.TemporaryFile() if log is None else contextlib.nullcontext(output) as errors,
    ):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise HungError(f"{command[0]} did not come back within {seconds:g} s") from None
        finally:
            _kill_group(process)
        output.seek(0)
        errors.seek(0)
        if code != 0:
            lines = errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise CalibrationError(f"{command[0]} ended with code {code}: {lines[-1]}")
        return output.read().decode(errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and everything in its process group; what has ended already is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # what hangs in a driver does not end even then
        process.wait(KILLED)
