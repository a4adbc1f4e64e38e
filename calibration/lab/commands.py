"""Runs a command that may hang, with all that it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from placer.calibration.measuring.faults import HungError
from placer.errors import CalibrationError

#: Seconds that a killed process may take to end.
KILLED = 5.0


def run_limited(
    command: Sequence[str],
    *,
    seconds: float,
    log: Path | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Standard output of a command. After ``seconds`` of real time, it and its children are killed.

    ``log``: where all that it says is kept. It runs in ``folder`` and ``environment`` (None: this process's).
    Raises HungError where it takes longer, and CalibrationError (with the last line it wrote) where it fails.
    """
    # Files, not pipes: a grandchild that lives on would keep a pipe open, and its reader waiting.
    with (
        tempfile.TemporaryFile() if log is None else log.open("w+b") as output,
        tempfile.TemporaryFile() if log is None else contextlib.nullcontext(output) as errors,
    ):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            cwd=folder,
            env=environment,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise HungError(f"{command[0]} did not come back within {seconds:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have ended, its children too
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # what hangs in a driver does not end even then
                process.wait(KILLED)
        output.seek(0)
        errors.seek(0)
        if code != 0:
            lines = errors.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise CalibrationError(f"{command[0]} ended with code {code}: {lines[-1]}")
        return output.read().decode(errors="replace")
