"""What one real step is worth: larger batches of a record, moved by the offset of their network's smallest one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from placer.calibration.validation.record import Cell
from placer.calibration.validation.scores import larger_batches
from placer.decision import recorded


def in_the_last_visit(cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
    """Larger batches as they were measured last, beside the smallest as it was first; none of one visit."""
    return [
        (replace(smallest, measured=smallest.visits[0]), replace(cell, measured=cell.visits[-1]))
        for smallest, cell in larger_batches(cells)
        if len(smallest.visits) > 1 and len(cell.visits) > 1
    ]


def beside(pairs: Iterable[tuple[Cell, Cell]], age: float | None) -> list[Cell]:
    """The second of each pair as it is predicted when the first was timed ``age`` seconds ago; None: another day.

    Pairs of which one was not predicted are left out.
    """
    moved: list[Cell] = []
    for timed, cell in pairs:
        if not (cell.predicted and cell.low and cell.high and timed.predicted and timed.measured):
            continue
        weight = recorded.counts(cell.predicted, timed.predicted, age)
        offset = recorded.Offset(timed.measured / timed.predicted, weight)
        time = offset.moved(cell.predicted, cell.low, cell.high)
        moved.append(replace(cell, predicted=time.step_seconds, low=time.low, high=time.high))
    return moved
