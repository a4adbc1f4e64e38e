"""Where the choice turns between CPU and accelerator as the batch grows: the step priced at a few other sizes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType
from typing import Any

from torch import Tensor, nn

from placer.decision import (
    Candidates,
    Objective,
    Table,
    Traced,
    batch_size,
    compare,
    is_cpu,
    only_placer_errors,
    trace_parts,
    with_batch,
)
from placer.errors import PlacerError
from placer.explanation.data import Turn
from placer.explanation.sweep import level
from placer.nest import tensors
from placer.workload import Job, Workload

#: Sizes that are asked about are apart by this factor, and go up to the second number.
FACTOR, LARGEST = 16, 65_536
#: So many more are asked about between two sizes with different choices, unless these are closer than the factor: what
#: is interpolated between them is exact enough then.
REFINED, CLOSE = 2, 1.5


def find_turn(what: Workload | Job, traced: Traced, table: Table, candidates: Candidates) -> Turn | None:
    """Where the choice turns by the batch of a step that was ``traced``, and priced in a ``table`` of ``candidates``.

    At most seven more steps are traced. None for a job, a step that runs its operations to be traced, inputs without a
    common first size, and where there are not both a CPU and an accelerator. Raises nothing.
    """
    size = _size(what)
    if size is None or isinstance(what, Job) or traced.parts[0].trace.real:
        return None
    if len({is_cpu(name) for name in table.costs}) < 2:
        return None
    search = _Search(what, candidates, table.objective, {size: table})
    upward = is_cpu(table.decide().device)
    search.walk(size, LARGEST if upward else 1)
    if search.bracket is None:  # how it is the other way, for one size
        search.walk(size, 1 if upward else min(size * FACTOR, LARGEST), at_once=True)
    return search.result() if len(search.tables) > 1 else None  # of one size nothing can turn


def _size(what: Workload | Job) -> int | None:
    return None if isinstance(what, Job) or what.is_step_function else batch_size(what)


class _Search:
    """The tables of a workload by batch size, and once found the two sizes between which the choice turns."""

    def __init__(
        self, workload: Workload, candidates: Candidates, objective: Objective, tables: dict[int, Table]
    ) -> None:
        self.workload, self.candidates, self.objective, self.tables = workload, candidates, objective, tables
        self.bracket: tuple[int, int] | None = None

    def on_cpu(self, size: int) -> bool:
        """Whether the choice at a size that was priced is a CPU."""
        return is_cpu(self.tables[size].decide().device)

    def priced(self, size: int) -> bool:
        """Trace and price the step at a size; False where that cannot be done, or runs the step's operations."""
        with suppress(PlacerError), only_placer_errors():
            traced = trace_parts(with_batch(self.workload, size))
            if not traced.parts[0].trace.real:
                self.tables[size] = compare(traced, self.candidates, self.objective)
        return size in self.tables

    def walk(self, start: int, end: int, *, at_once: bool = False) -> None:
        """Go from ``start`` to ``end``, until the choice turns or a size cannot be priced."""
        near = start
        while (near < end if end > start else near > end) and self.bracket is None:
            far = end if at_once else min(near * FACTOR, end) if end > start else max(near // FACTOR, end)
            if not self.priced(far):
                return
            if self.on_cpu(far) != self.on_cpu(near):
                self.bracket = min(near, far), max(near, far)
                self.refine()
            near = far

    def refine(self) -> None:
        """Bring the two sizes closer together, each time where they are level as far as is known."""
        for _ in range(REFINED):
            assert self.bracket is not None
            low, high = self.bracket
            middle = round(self.level() or (low * high) ** 0.5)
            if high <= CLOSE * low or not low < middle < high or not self.priced(middle):
                return
            self.bracket = (low, middle) if self.on_cpu(middle) != self.on_cpu(low) else (middle, high)

    def level(self) -> float | None:
        """About where the two choices take the same; None where something else turns it, like memory."""
        assert self.bracket is not None
        low, high = (self.tables[size] for size in self.bracket)
        old, new = low.decide().device, high.decide().device
        pairs: list[tuple[float, float]] = []
        for table in (low, high):
            if old not in table.costs or new not in table.costs:
                return None
            before, after = (self.objective.counted(table.costs[name], table.repeats) for name in (old, new))
            pairs.append((before, after))
        return level(*self.bracket, *pairs)

    def result(self) -> Turn:
        smallest, largest = min(self.tables), max(self.tables)
        low, high = self.bracket or (smallest, largest)
        below, above = self.tables[low].decide().device, self.tables[high].decide().device
        batch = None if self.bracket is None else self.level() or (low * high) ** 0.5
        return Turn(batch, below, above, smallest, largest)


class LaterTurn:
    """``find_turn`` for a model that was placed, when somebody asks: calling it traces the step.

    It keeps shapes in place of the batch, and neither the model nor its optimizer alive. The call gives None where they
    are gone, and raises nothing.
    """

    def __init__(self, workload: Workload, candidates: Candidates, objective: Objective) -> None:
        self._target = weakref.ref(workload.target)
        self._modules = [weakref.ref(module) for module in workload.modules]
        given = workload.optimizer
        self._optimizer = given if given is None or isinstance(given, str) else weakref.ref(given)
        shapes = with_batch(workload, batch_size(workload) or 1)
        self._rest = replace(shapes, target=_gone, modules=(), loss_modules=(), optimizer=None, draw=None)
        self._candidates, self._objective = candidates, objective

    @classmethod
    def of(cls, workload: Workload | Job, candidates: Candidates, objective: Objective) -> LaterTurn | None:
        """None where there will be no turn to find, or something would keep the batch alive. Raises nothing."""
        if isinstance(workload, Job) or len({is_cpu(each.name) for each in candidates.each}) < 2:
            return None
        with suppress(PlacerError), only_placer_errors():
            if _size(workload) is None or not _closes_over_nothing(workload.loss):
                return None
            later = cls(workload, candidates, objective)
            own = {id(tensor) for tensor in tensors(workload.batch)}
            kept = tensors(later._rest.batch)
            return None if any(id(tensor) in own for tensor in kept) else later
        return None

    def __call__(self) -> Turn | None:
        target, modules = self._target(), tuple(module for each in self._modules if (module := each()) is not None)
        optimizer: Any = self._optimizer() if isinstance(self._optimizer, weakref.ref) else self._optimizer
        lost = optimizer is None and self._optimizer is not None
        if target is None or lost or len(modules) < len(self._modules):
            return None
        workload = replace(self._rest, target=target, modules=modules, optimizer=optimizer)
        with suppress(PlacerError), only_placer_errors():
            traced = trace_parts(workload)
            table = compare(traced, self._candidates, self._objective)
            return find_turn(workload, traced, table, self._candidates)
        return None


def _gone() -> None:
    """In the place of a model that is not kept."""


def _closes_over_nothing(loss: Callable[..., Any] | None) -> bool:
    """Whether a loss cannot hold a batch or a model: most that close over something close over targets."""
    if isinstance(loss, FunctionType):
        kept = loss.__closure__ or loss.__defaults__ or loss.__kwdefaults__
        return not kept or loss.__module__.startswith("torch.")
    if isinstance(loss, nn.Module):
        held: list[Any] = [*loss.children(), *loss.parameters(), *loss.buffers(), *vars(loss).values()]
        return not any(isinstance(each, (nn.Module, Tensor)) for each in held)
    return loss is None or isinstance(loss, BuiltinFunctionType)
