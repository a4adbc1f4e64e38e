"""Where the choice turns between CPU and accelerator as the batch grows: the step priced at a few other sizes."""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from placer.decision import (
    JOB,
    Candidates,
    Question,
    Table,
    Traced,
    answer,
    batch_size,
    is_cpu,
    only_placer_errors,
    trace_parts,
    with_batch,
)
from placer.errors import PlacerError
from placer.explanation.data import Turn
from placer.explanation.sweep import level
from placer.workload import Workload

#: Sizes that are asked about are apart by this factor, and go up to the second number.
FACTOR, LARGEST = 16, 65_536
#: So many more are asked about between two sizes with different choices, unless these are closer than the factor: what
#: is interpolated between them is exact enough then.
REFINED, CLOSE = 2, 1.5


def find_turn(traced: Traced, question: Question, table: Table) -> Turn | None:
    """Where the choice turns by the batch of a step that was ``traced``; ``table`` is the answer to the ``question``.

    At most seven more steps are traced. None for a job, a step that runs its operations to be traced, inputs without a
    common first size, and where there are not both a CPU and an accelerator. Raises nothing.
    """
    size = _varied(traced, table)
    if size is None:
        return None
    workload = traced.parts[0].workload
    sizes = _Sizes(workload, question.all_alike(), {size: replace(table, beside=frozenset())})
    larger, smaller = _larger(size), _smaller(size)
    forth, back = (larger, smaller[-1:]) if sizes.on_cpu(size) else (smaller, larger[:1])
    # Where it does not turn, how it is the other way, for one size.
    ends = sizes.first_change(size, forth) or sizes.first_change(size, back)
    if len(sizes.tables) < 2:  # of one size nothing can turn
        return None
    smallest, largest = min(sizes.tables), max(sizes.tables)
    low, high = sizes.refined(*ends) if ends else (smallest, largest)
    below, above = (sizes.tables[end].decide().device for end in (low, high))
    return Turn(sizes.middle(low, high) if ends else None, below, above, smallest, largest)


def _varied(traced: Traced, table: Table) -> int | None:
    """The batch of a step whose choice can turn by it; None where it cannot, or nobody can tell without running it."""
    part = traced.parts[0]
    if traced.unit == JOB or part.workload.is_step_function or part.trace.real:
        return None
    return batch_size(part.workload) if len({is_cpu(name) for name in table.costs}) > 1 else None


def _larger(size: int) -> list[int]:
    """The sizes above one that are asked about."""
    sizes = []
    while size < LARGEST:
        size = min(size * FACTOR, LARGEST)
        sizes.append(size)
    return sizes


def _smaller(size: int) -> list[int]:
    """The sizes below one that are asked about, the largest first."""
    sizes = []
    while size > 1:
        size = max(size // FACTOR, 1)
        sizes.append(size)
    return sizes


@dataclass
class _Sizes:
    """The answers for a workload by batch size."""

    workload: Workload
    question: Question
    tables: dict[int, Table]

    def on_cpu(self, size: int) -> bool:
        """Whether the choice at a size that was priced is a CPU."""
        return is_cpu(self.tables[size].decide().device)

    def priced(self, size: int) -> bool:
        """Trace and price the step at a size; False where that cannot be done, runs its operations, or fits nowhere."""
        with suppress(PlacerError), only_placer_errors():
            traced = trace_parts(with_batch(self.workload, size))
            if not traced.parts[0].trace.real:
                table = answer(replace(self.question, work=traced))
                if table.fits:
                    self.tables[size] = table
        return size in self.tables

    def first_change(self, near: int, sizes: Sequence[int]) -> tuple[int, int] | None:
        """The two neighbours of ``near`` and ``sizes`` between which the choice turns, the smaller first."""
        for far in sizes:
            if not self.priced(far):
                return None
            if self.on_cpu(far) != self.on_cpu(near):
                return min(near, far), max(near, far)
            near = far
        return None

    def middle(self, low: int, high: int) -> float:
        """About where the two choices are level, or memory is full; half way where something else turns it."""
        return level(self.tables, low, high) or self._full(low, high) or (low * high) ** 0.5

    def _full(self, low: int, high: int) -> float | None:
        """Where the memory of the device chosen at ``low`` is full, which grows linearly; None: not below ``high``."""
        device = self.tables[low].decide().device
        before, after = self.tables[low].costs[device], self.tables[high].costs[device]
        if after.fits or not before.fits or after.available_memory_bytes is None:
            return None
        growth = after.peak_memory_bytes - before.peak_memory_bytes
        left = after.available_memory_bytes - before.peak_memory_bytes
        return low + (high - low) * left / growth if 0 < left < growth else None

    def refined(self, low: int, high: int) -> tuple[int, int]:
        """The two sizes brought closer together, each time where they are level as far as is known."""
        for _ in range(REFINED):
            middle = round(self.middle(low, high))
            if high <= CLOSE * low or not low < middle < high or not self.priced(middle):
                break
            if self.on_cpu(middle) == self.on_cpu(low):
                low = middle
            else:
                high = middle
        return low, high


# --- all turns of what serves requests of any size --------------------------------------------------------------------

#: Threads that ask for the same turns at once price them once.
_one_at_a_time = threading.Lock()


def _after_fork() -> None:
    """Replace the lock in a child, where the thread that held it does not exist."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)


class Turns:
    """The devices of an inference by its batch, priced when they are first asked for.

    It keeps no tensor of the user's alive: of a batch it has the shapes, of the model a weak reference.
    """

    def __init__(self, workload: Workload, candidates: Candidates, table: Table, size: int) -> None:
        self._model: Callable[[], Any] = weakref.ref(workload.model)
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # no mode of the caller's sees it
            shapes = with_batch(workload, size)
        self._workload = replace(shapes, model=_no_model, modules=(), loss_modules=(), steps=None)
        self._candidates, self._size = candidates, size
        self._table = replace(table, repeats=None)
        self._rows: tuple[tuple[int, str], ...] | None = None

    @classmethod
    def of(cls, traced: Traced, candidates: Candidates, table: Table) -> Turns | None:
        """Those of a step that was traced, if its choice can turn by the batch; ``table`` is the answer for it."""
        size, part = _varied(traced, table), traced.parts[0]
        if size is not None and part.trace.mode == "infer":
            with suppress(PlacerError), only_placer_errors():
                return cls(part.workload, candidates, table, size)
        return None

    def __getstate__(self) -> dict[str, Any]:
        """In another process only what is priced by then is known: the model is not there."""
        return {"_rows": self._rows, "_model": _no_model}

    def rows(self) -> tuple[tuple[int, str], ...]:
        """The sizes from which on another device is chosen for a long run, each with that device; the first size is 1.

        Some seven steps are traced the first time. Raises PlacerError where the model is gone by then.
        """
        with _one_at_a_time:
            if self._rows is None:
                self._rows = self._priced()
        return self._rows

    def _priced(self) -> tuple[tuple[int, str], ...]:
        model = self._model()
        if model is None:
            raise PlacerError("the model that was chosen for is gone: ask for turns before, and in its own process")
        workload = replace(self._workload, model=model, modules=(model,))
        question = Question(workload, self._candidates, self._table.objective, recorded=True)
        sizes = _Sizes(workload, question, {self._size: self._table})
        for outwards in (_smaller(self._size), _larger(self._size)):
            for size in outwards:
                if not sizes.priced(size):
                    break
        asked = sorted(sizes.tables)
        rows = [(1, sizes.tables[asked[0]].decide().device)]
        for low, high in itertools.pairwise(asked):
            if sizes.on_cpu(low) != sizes.on_cpu(high):
                turn = sizes.middle(*sizes.refined(low, high))
                rows.append((math.ceil(turn), sizes.tables[high].decide().device))
        return tuple(rows)


def _no_model() -> None:
    """Stands for the model in a workload that must not keep it alive."""
