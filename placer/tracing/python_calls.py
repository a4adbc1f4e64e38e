"""Counts the Python functions a step enters outside its backward passes, and updates that are priced as a whole.

Networks of equal ops differ by the Python around them: libraries of layers enter several functions per op. The count is
the interpreter's own, taken while the step is traced, without the functions that only tracing enters. A function costs
more when its code was evicted from a core's own caches since its last entry. The reuse distance of an entry is the
number of different other functions entered since the last entry of the same function: the LRU stack distance of Mattson
et al., "Evaluation techniques for storage hierarchies" (1970). An entry that finds its code and data still cached costs
a third of one that finds them evicted.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, MethodType
from typing import Any, TypeVar

import torch

from placer import nest
from placer.collector import without_collection
from placer.workload import loss_of

Function = TypeVar("Function", bound=Callable[..., Any])

#: Reuse distances, in functions: up to ``NEAR`` all of a function is still cached, from ``FAR`` on none of it. What
#: networks of ordinary layers have (17) still fits; today's cores differ too little to matter.
NEAR, FAR = 15, 25
#: Functions that the loop around a step enters before the next step begins (gradient mode, timers, batches): the least.
AROUND = 8


class LruStack:
    """The last ``FAR`` different functions by their last entry, and the evictions found so far."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._stack: list[int] = []  # the latest at the end
        self._evicted = 0.0

    def enter(self, function: int) -> None:
        """Count the next entry of the sequence. ``function``: any number that identifies it."""
        stack = self._stack
        try:
            place = stack.index(function)
        except ValueError:  # its distance is at least FAR, or this is its first entry
            self._evicted += function in self._seen
            self._seen.add(function)
            if len(stack) == FAR:
                del stack[0]
        else:
            distance = len(stack) - 1 - place
            if distance > NEAR:
                self._evicted += _evicted_share(distance)
            del stack[place]
        stack.append(function)

    @property
    def evicted(self) -> float:
        """Entries that find their code evicted; one in between counts in part.

        The sequence repeats, so the first entry of a function has a distance too: all other functions, and the loop's.
        """
        functions = len(self._seen)
        return self._evicted + functions * _evicted_share(functions - 1 + AROUND)


def _evicted_share(distance: int) -> float:
    """How much of a function is evicted at this reuse distance, 0 to 1."""
    return min(max((distance - NEAR) / (FAR - NEAR), 0.0), 1.0)


_TORCH = Path(torch.__file__).parent
#: Files whose code does not count: what runs only because the step is traced (this package, function modes, the
#: dispatcher's way to Python).
_NOT_COUNTED = (
    str(Path(__file__).parent),
    nest.__file__,
    loss_of.__code__.co_filename,
    contextlib.__file__,
    functools.__file__,
    "<string>",
    *(
        str(_TORCH / path)
        for path in (
            "overrides.py",
            "_ops.py",
            "_library",
            "utils/_python_dispatch.py",
            "_jit_internal.py",
            "compiler/__init__.py",
            "utils/_device.py",
        )
    ),
)


#: As how many functions one counts, by the id of its code.
_WEIGHTS: dict[int, int] = {}


def stands_for(functions: int) -> Callable[[Function], Function]:
    """A decorator of what runs in a library's place in a traced step: a call of it counts as so many functions."""

    def weighted(function: Function) -> Function:
        _WEIGHTS[id(function.__code__)] = functions
        return function

    return weighted


class PythonCalls:
    """``count`` is the number of Python functions entered inside ``counting()`` while not ``paused``.

    Where a debugger or a coverage tool already listens to the interpreter, counting would cut it off: then nothing is
    counted and ``known`` is False.
    """

    def __init__(self, imports: bool = True) -> None:
        """``imports``: whether Python's own functions that import modules count."""
        self.imports = imports
        self.count = 0
        #: Set while a backward pass or an update runs.
        self.paused = False
        self.known = sys.getprofile() is None
        self._stack = LruStack()
        #: As how many functions a code object counts, by its id; it is held, as hashing it would walk its instructions.
        self._codes: dict[int, tuple[int, CodeType]] = {}

    def entered(self, modules: int, ops: int) -> int:
        """Python functions an untraced step enters, given its module and op calls so far."""
        if not self.known or not self.count:
            return 4 * modules + ops  # not counted: what usual layers enter
        # A module with hooks, as all have while they are traced, enters one function more.
        return max(self.count - modules, 0)

    @property
    def evicted(self) -> float:
        """How many entries find their code evicted, by their reuse distance; 0 where nothing was counted."""
        return self._stack.evicted

    @contextlib.contextmanager
    def counting(self, on: bool = True) -> Iterator[None]:
        """Count in this thread, if ``on``. Garbage collection waits: its callbacks are no part of the step."""
        if not (on and self.known):
            yield
            return
        with without_collection():
            before = sys.getprofile()  # its own, where a step evaluates the model once more
            sys.setprofile(self._listen)
            try:
                yield
            finally:
                sys.setprofile(before)

    def _listen(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or self.paused:
            return
        code = frame.f_code
        entry = self._codes.get(id(code))
        if entry is None:
            counts = _counts(code) and (self.imports or not code.co_filename.startswith("<frozen importlib"))
            entry = self._codes[id(code)] = (_WEIGHTS.get(id(code), 1) if counts else 0, code)
        if entry[0]:
            self.count += entry[0]
            self._stack.enter(id(code))


def _counts(code: CodeType) -> bool:
    return not code.co_filename.startswith(_NOT_COUNTED)


class Uncounted:
    """A context in which nothing is counted: tracing's own work. Entered for every op, so it is no generator.

    Other profile functions stay set: a profiler written in C, once unset, cannot be set again from Python.
    """

    __slots__ = ("_listening",)

    def __enter__(self) -> None:
        listening = sys.getprofile()
        # No further call of a builtin: each would be an event to listen to.
        counts = type(listening) is MethodType and type(listening.__self__) is PythonCalls
        self._listening = listening if counts else None
        if counts:
            sys.setprofile(None)

    def __exit__(self, *error: object) -> None:
        if self._listening is not None:
            sys.setprofile(self._listening)
