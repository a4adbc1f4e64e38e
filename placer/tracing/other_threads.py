"""What other threads keep for themselves stays alive in a forked child.

Python ends the states of all other threads in a child, and with them what nothing else refers to: values of
``threading.local`` and of context variables, and the exception that a thread handles. Their finalizers would run there:
they remove the parent's temporary files, say goodbye to its servers, or wait for threads that a child does not have.
"""

from __future__ import annotations

import contextvars
import ctypes
import gc
import sys
import threading
import weakref
from itertools import accumulate, chain, repeat, takewhile
from operator import itemgetter
from typing import Any, NamedTuple

_Address = ctypes.c_void_p
#: The first words of a thread's state (CPython's ``PyThreadState``).
_State = _Address * 64


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C API, called without letting another thread run."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_interpreter = _python("PyInterpreterState_Get", _Address)
_first_state = _python("PyInterpreterState_ThreadHead", _Address, _Address)
_next_state = _python("PyThreadState_Next", _Address, _Address, ctypes.c_int)  # the number is not looked at
_own_state = _python("PyThreadState_Get", _Address)
_own_dictionary = _python("PyThreadState_GetDict", _Address)
_add_reference = _python("Py_NewRef", _Address, _Address)
_drop_reference = _python("Py_DecRef", None, _Address)


class Held(NamedTuple):
    """References to what other threads keep for themselves."""

    addresses: list[int]
    exceptions: dict[int, Any]


def hold() -> Held:
    """Refer to what all threads keep for themselves, until ``let_go``. A child never lets go."""
    exceptions = sys._current_exceptions()
    collects = gc.isenabled()
    gc.disable()  # a collection runs Python code
    try:
        return Held(_referred_to() if len(_KEPT_AT) > 1 else [], exceptions)
    finally:
        if collects:
            gc.enable()


def let_go(held: Held) -> None:
    """What a thread kept that has ended meanwhile is finalized here."""
    for address in held.addresses:
        _drop_reference(address)


def _referred_to() -> list[int]:
    """The objects that the states of all threads refer to, each with one more reference.

    All happens in the last call, and inside of it only in functions written in C: no thread starts or ends meanwhile.
    """
    states = takewhile(bool, accumulate(chain(map(_first_state, [_interpreter()]), repeat(0)), _next_state))
    objects = chain.from_iterable(map(itemgetter(*_KEPT_AT), map(_State.from_address, states)))
    return list(map(_add_reference, filter(None, objects)))


def _kept_at() -> list[int]:
    """Which words of a state refer to what its thread keeps: those that do so in the state of this thread.

    They differ between versions of Python. Since 3.13 values of ``threading.local`` end with an object of their own.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return []  # threads start and end at any time
    context, ends = contextvars.copy_context(), _ends_of_locals()
    known = {_own_dictionary(), id(context), *map(id, ends)}
    return context.run(lambda: [at for at, word in enumerate(_State.from_address(_own_state())) if word in known])


def _ends_of_locals() -> list[object]:
    """The objects of this thread with which its values of ``threading.local`` end."""
    local = threading.local()
    local.value = None
    containers = [held for held in gc.get_referents(local) if isinstance(held, dict | set)]
    keys = chain.from_iterable(containers)
    return [key() if isinstance(key, weakref.ref) else key for key in keys]


_KEPT_AT = _kept_at()
