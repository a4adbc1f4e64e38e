"""Where the choice turns between CPU and accelerator as the batch grows: the step priced at a few other sizes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from placer.decision import (
    JOB,
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
    part = traced.parts[0]
    if traced.unit == JOB or part.workload.is_step_function or part.trace.real:
        return None
    size = batch_size(part.workload)
    if size is None or len({is_cpu(name) for name in table.costs}) < 2:
        return None
    first = replace(table, beside=frozenset())
    search = _Search(part.workload, question.all_alike(), {size: first})
    upward = search.on_cpu(size)
    search.walk(size, LARGEST if upward else 1)
    if search.bracket is None:  # how it is the other way, for one size
        search.walk(size, 1 if upward else min(size * FACTOR, LARGEST), at_once=True)
    return search.result() if len(search.tables) > 1 else None  # of one size nothing can turn


class _Search:
    """The tables of a workload by batch size, and once found the two sizes between which the choice turns."""

    def __init__(self, workload: Workload, question: Question, tables: dict[int, Table]) -> None:
        self.workload, self.question, self.tables = workload, question, tables
        self.bracket: tuple[int, int] | None = None

    def on_cpu(self, size: int) -> bool:
        """Whether the choice at a size that was priced is a CPU."""
        return is_cpu(self.tables[size].decide().device)

    def priced(self, size: int) -> bool:
        """Trace and price the step at a size; False where that cannot be done, or runs the step's operations."""
        with suppress(PlacerError), only_placer_errors():
            traced = trace_parts(with_batch(self.workload, size))
            if not traced.parts[0].trace.real:
                self.tables[size] = answer(replace(self.question, work=traced))
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
            before, after = (self.question.objective.counted(table.costs[name]) for name in (old, new))
            pairs.append((before, after))
        return level(*self.bracket, *pairs)

    def result(self) -> Turn:
        smallest, largest = min(self.tables), max(self.tables)
        low, high = self.bracket or (smallest, largest)
        below, above = self.tables[low].decide().device, self.tables[high].decide().device
        batch = None if self.bracket is None else self.level() or (low * high) ** 0.5
        return Turn(batch, below, above, smallest, largest)
