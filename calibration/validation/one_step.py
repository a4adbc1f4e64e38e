"""What one real step is worth: larger batches of a record, moved by the offset of their network's smallest one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from placer.calibration.validation.record import Cell
from placer.calibration.validation.scores import group_by
from placer.decision import recorded


def larger_batches(cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
    """Cells that were predicted and measured, but for the smallest batch of each network and mode at each place.

    Each stands beside that one.
    """
    complete = [cell for cell in cells if cell.predicted and cell.measured and cell.low and cell.high]
    found: list[tuple[Cell, Cell]] = []
    for group in group_by(complete, lambda cell: (cell.network, cell.mode, cell.device, cell.threads)).values():
        smallest, *larger = sorted(group, key=lambda cell: cell.batch)
        found += [(smallest, cell) for cell in larger]
    return found


def in_the_last_visit(cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
    """The same, the larger batches as they were measured last, the smallest as it was first; none of one visit."""
    return [
        (replace(smallest, measured=smallest.visits[0]), replace(cell, measured=cell.visits[-1]))
        for smallest, cell in larger_batches(cells)
        if len(smallest.visits) > 1 and len(cell.visits) > 1
    ]


def beside(pairs: Iterable[tuple[Cell, Cell]], age: float | None) -> list[Cell]:
    """The second of each pair as it is predicted when the first was timed ``age`` seconds ago; None: another day."""
    moved: list[Cell] = []
    for timed, cell in pairs:
        assert cell.predicted is not None
        assert cell.low is not None
        assert cell.high is not None
        assert timed.predicted is not None
        assert timed.measured is not None
        weight = recorded.counts(cell.predicted, timed.predicted, age)
        offset = recorded.Offset(timed.measured / timed.predicted, weight)
        time = offset.moved(cell.predicted, cell.low, cell.high)
        moved.append(replace(cell, predicted=time.step_seconds, low=time.low, high=time.high))
    return moved
