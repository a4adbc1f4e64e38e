"""Waits for a device, tells one that no longer works from a probe that cannot run on it, and gives its memory back."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from functools import partial

import torch

from placer.calibration.measuring.watchdog import time_limit
from placer.errors import CalibrationError, first_line
from placer.placement import synchronize

#: What torch raises where a device cannot run an op, or cannot be used at all: no kernels for its generation, a driver
#: too old, a device that is busy or full, a dtype it has not (a TypeError on Apple's). ``torch.AcceleratorError`` and
#: ``torch.OutOfMemoryError`` are RuntimeErrors.
DEVICE_ERRORS = (RuntimeError, TypeError, ValueError, MemoryError, torch.cuda.DeferredCudaCallError)
#: Real seconds that a tiny op may take on a device that works.
LIMIT = 20.0
#: Characters of a cause that are kept.
_LENGTH = 200


class BrokenDeviceError(CalibrationError):
    """The device runs nothing any more in this process."""


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
