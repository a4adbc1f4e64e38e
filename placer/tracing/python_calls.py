"""Counts the Python functions a forward pass enters: the time between ops that no kernel explains.

Two networks of equal ops differ by the Python around them; libraries of layers enter several functions per op. The
count is the interpreter's own, taken while the step is traced, without what tracing itself enters.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

_TORCH = Path(torch.__file__).parent
#: Files whose code runs because the step is being traced: this package, function modes, the dispatcher's way to Python.
_TRACING_ONLY = (
    str(Path(__file__).parent),
    contextlib.__file__,
    functools.__file__,
    "<string>",
    *(str(_TORCH / path) for path in (
        "overrides.py", "_ops.py", "_library", "utils/_python_dispatch.py", "_jit_internal.py", "compiler/__init__.py",
        "utils/_device.py",
    )),
)  # fmt: skip


class PythonCalls:
    """``count`` is the number of Python functions entered inside ``counting()``.

    Where somebody else listens to the interpreter (a debugger, a coverage tool) nothing is counted and ``known`` is
    False: they would be cut off.
    """

    def __init__(self) -> None:
        self.count = 0
        self.known = sys.getprofile() is None
        self._user_code: dict[CodeType, bool] = {}

    def entered(self, modules: int, ops: int) -> int:
        """Python functions the step enters when nobody traces it, given its module and op calls so far."""
        if not self.known or not self.count:
            return 4 * modules + ops  # what usual layers enter
        # A module with hooks, as all have while they are traced, enters one function more.
        return max(self.count - modules, 0)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count from here on, in this thread. Garbage is collected afterwards: what listens to that is not the step."""
        if not self.known:
            yield
            return
        collects = gc.isenabled()
        gc.disable()
        sys.setprofile(self._listen)
        try:
            yield
        finally:
            sys.setprofile(None)
            if collects:
                gc.enable()

    def _listen(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        counts = self._user_code.get(code)
        if counts is None:
            counts = self._user_code[code] = not _only_traced(code)
        self.count += counts


def _only_traced(code: CodeType) -> bool:
    return code.co_filename.startswith(_TRACING_ONLY)


class Uncounted:
    """A context: what runs inside belongs to tracing, whatever it calls. Entered for every op, so no generator.

    Somebody else who listens is left alone: a profiler in C, once unset, cannot be set again from Python.
    """

    __slots__ = ("_listening",)

    def __enter__(self) -> None:
        listening = sys.getprofile()
        counts = isinstance(getattr(listening, "__self__", None), PythonCalls)
        self._listening = listening if counts else None
        if counts:
            sys.setprofile(None)

    def __exit__(self, *error: object) -> None:
        if self._listening is not None:
            sys.setprofile(self._listening)
