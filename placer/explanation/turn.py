"""Where the choice turns between CPU and accelerator as the batch grows: the step priced at a few other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

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
    sizes = _Sizes(part.workload, question.all_alike(), {size: replace(table, beside=frozenset())})
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
        """Trace and price the step at a size; False where that cannot be done, or runs the step's operations."""
        with suppress(PlacerError), only_placer_errors():
            traced = trace_parts(with_batch(self.workload, size))
            if not traced.parts[0].trace.real:
                self.tables[size] = answer(replace(self.question, work=traced))
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
        """About where the two choices are level; half way where something else turns it, like memory."""
        return level(self.tables, low, high) or (low * high) ** 0.5

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
