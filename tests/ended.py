"""Whether a process is gone."""

from __future__ import annotations

import time

import psutil


def ended(pid: int, seconds: float = 30.0) -> bool:
    """Reaped, or a zombie that nobody has waited for yet; waits up to ``seconds`` for it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False
