"""The device guard of the backend, and errors that are under way while torch asks it something.

Torch's C++ side of a Python backend calls ``type_`` also while it unwinds from an exception raised by Python, and
aborts the process if that call fails, as a Python call with an exception pending does. So the guard takes the pending
exception, and what ran backward raises it again.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch._C._autograd import DeviceType

_taken: list[BaseException] = []


class Guard(torch._C._acc.DeviceGuard):
    def type_(self) -> DeviceType:
        try:
            ctypes.pythonapi.PyErr_Occurred()  # ctypes raises what is pending when the call returns
        except BaseException as error:  # noqa: BLE001  whatever it is, it is raised again
            _taken.append(error)
        return DeviceType.PrivateUse1


def raise_what_was_taken() -> None:
    """Make ``backward`` raise the exception of a backward op, as it does for every other backend."""
    builtin = torch.autograd._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        _taken.clear()
        try:
            return builtin(*args, **kwargs)
        except SystemError:
            if _taken:
                raise _taken[0] from None
            raise

    torch.autograd._engine_run_backward = run
