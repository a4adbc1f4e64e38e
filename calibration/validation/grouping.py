"""Groups cells for a report: by any label, by bands of batch sizes and of step times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from placer.calibration.validation.record import Cell


def group_by(cells: Iterable[Cell], label: Callable[[Cell], str]) -> dict[str, list[Cell]]:
    """Cells by label, labels in the order they first appear."""
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[label(cell)].append(cell)
    return dict(groups)


def batch_band(cell: Cell) -> str:
    """The batch size, in bands of a factor of about ten."""
    for top, name in ((1, "1"), (15, "2-15"), (127, "16-127"), (1023, "128-1,023")):
        if cell.batch <= top:
            return name
    return "1,024 and more"


def time_band(cell: Cell) -> str:
    """The measured step time, in bands of a factor of ten."""
    if cell.measured is None:
        return "not measured"
    for top, name in ((1e-3, "below 1 ms"), (1e-2, "1-10 ms"), (1e-1, "10-100 ms"), (1.0, "0.1-1 s")):
        if cell.measured < top:
            return name
    return "1 s and more"
