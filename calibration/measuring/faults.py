"""Survives what goes wrong: ends what hangs, tells a device that no longer works, and keeps two calibrations apart."""

from __future__ import annotations

import contextlib
import gc
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import torch
from filelock import FileLock, Timeout

from placer.errors import CalibrationError, first_line
from placer.placement import synchronize
from placer.profile import working_file

#: What torch raises where a device cannot run an op, or cannot be used at all: no kernels for its generation, a driver
#: too old, a device that is busy or full, a dtype it has not (a TypeError on Apple's). ``torch.AcceleratorError`` and
#: ``torch.OutOfMemoryError`` are RuntimeErrors.
DEVICE_ERRORS = (RuntimeError, TypeError, ValueError, MemoryError, torch.cuda.DeferredCudaCallError)
#: Real seconds that a tiny op may take on a device that works.
LIMIT = 20.0
#: Characters of a cause that are kept.
_LENGTH = 200


class HungError(CalibrationError):
    """Something did not come back in time and was ended."""


class BrokenDeviceError(CalibrationError):
    """The device runs nothing any more in this process."""


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


def synchronizer(device: str) -> Callable[[], None] | None:
    """A function that waits for the device's queue; None on the CPU, which has none."""
    return None if device == "cpu" else partial(synchronize, device)


def check(device: str) -> None:
    """Run one tiny op and wait for it; raises BrokenDeviceError where that fails.

    After an illegal access or a failed assertion on a CUDA device, its context answers every later call with an error.
    """
    try:
        with time_limit(LIMIT, f"a tiny op on {device}"):
            torch.ones(1, device=device).neg_()
            synchronize(device)
    except (*DEVICE_ERRORS, CalibrationError) as error:
        raise BrokenDeviceError(cause(error)) from error


def cause(error: BaseException) -> str:
    """An error's class and its first line, as one printable line of limited length."""
    text = first_line(error)
    if not isinstance(error, CalibrationError):  # placer's own say enough
        text = f"{type(error).__name__}: {text}"
    return "".join(c if c.isprintable() else " " for c in text)[:_LENGTH].rstrip()


def release(device: str) -> None:
    """Give back what was held: modules and graphs are reference cycles, and allocators keep free memory."""
    gc.collect()
    if device != "cpu":
        with contextlib.suppress(RuntimeError, AttributeError):
            torch.get_device_module(torch.device(device)).empty_cache()


def check_writable(target: Path) -> None:
    """Raise CalibrationError where no file can be written beside ``target``, whose folder is made."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise CalibrationError(
            f"cannot write {target}: {error.strerror or error}; "
            "give another file (placer calibrate --output FILE) or folder (PLACER_HOME)"
        ) from error


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of calibrating into ``target``. The system releases it when its holder ends, however that happens.

    Raises CalibrationError where another process holds it, where placer's folder cannot be written, and where the lock
    is a symbolic link: in a folder that others may write to, it could lead anywhere.
    """
    path = working_file(target, ".lock")
    if path.is_symlink():
        raise CalibrationError(f"{path} is a symbolic link, which is refused: remove it and run placer calibrate again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0)
        lock.acquire()
    except Timeout:
        raise CalibrationError(
            f"another calibration is writing {target}: wait until it is done, or give another file with --output"
        ) from None
    except OSError as error:
        raise CalibrationError(
            f"cannot write {path}: {error.strerror or error}; give another folder (PLACER_HOME)"
        ) from error
    try:
        yield
    finally:
        # The file is removed while the lock is held. A process that opened it just before gets a lock that no third one
        # sees: at worst, two calibrations disturb each other.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()
