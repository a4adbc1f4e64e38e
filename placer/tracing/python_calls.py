"""Counts the Python functions a forward pass enters: the time between ops that no kernel explains.

Two networks of equal ops differ by the Python around them; libraries of layers enter several functions per op. The
count is the interpreter's own, taken while the step is traced, without what tracing itself enters.

A function that ran a moment ago costs a third of one whose code and data others have evicted from a core's own caches
since. How far back that was is counted in other functions (the LRU stack distance of Mattson et al., "Evaluation
techniques for storage hierarchies", 1970).
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
#: Other functions since a function was entered last: up to the first number all of it is still there, from the second
#: on it is gone. What networks of ordinary layers take (17) still fits; today's cores differ too little to matter.
NEAR, FAR = 15, 25
#: Functions that the loop around a step enters before the next one begins (gradient mode, timers, batches): the least.
AROUND = 8
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
        self._recency = Recency()
        #: By the identity of the code, which is kept alive (its hash would walk all its instructions): does it count?
        self._codes: dict[int, tuple[bool, CodeType]] = {}

    def entered(self, modules: int, ops: int) -> int:
        """Python functions the step enters when nobody traces it, given its module and op calls so far."""
        if not self.known or not self.count:
            return 4 * modules + ops  # what usual layers enter
        # A module with hooks, as all have while they are traced, enters one function more.
        return max(self.count - modules, 0)

    @property
    def evicted(self) -> float:
        """How many of the functions entered find their code evicted; none where nothing is known."""
        return self._recency.evicted

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
        known = self._codes.get(id(code))
        if known is None:
            known = self._codes[id(code)] = (not _only_traced(code), code)
        if known[0]:
            self.count += 1
            self._recency.enter(id(code))


class Recency:
    """How long ago each function of a repeated sequence was entered last, in other functions entered since."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        #: The last ``FAR`` different functions, the latest at the end.
        self._recent: list[int] = []
        self._evicted = 0.0

    def enter(self, function: int) -> None:
        recent = self._recent
        try:
            place = recent.index(function)
        except ValueError:  # long ago, or never yet
            self._evicted += function in self._seen
            self._seen.add(function)
            if len(recent) == FAR:
                del recent[0]
        else:
            self._evicted += _evicted_after(len(recent) - 1 - place)
            del recent[place]
        recent.append(function)

    @property
    def evicted(self) -> float:
        """Entries that find their code evicted, in parts of one.

        The first entry of a function finds what the sequence before left, after all its other functions and the loop's.
        """
        functions = len(self._seen)
        return self._evicted + functions * _evicted_after(functions - 1 + AROUND)


def _evicted_after(others: int) -> float:
    """How much of a function is gone once so many others were entered, 0 to 1."""
    return min(max((others - NEAR) / (FAR - NEAR), 0.0), 1.0)


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
