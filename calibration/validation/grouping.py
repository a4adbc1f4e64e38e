"""Groups what a report counts: by any label, cells by bands of batch sizes and of step times."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from placer.calibration.validation.record import Cell

T = TypeVar("T")
Label = TypeVar("Label", bound=Hashable)


def group_by(items: Iterable[T], label: Callable[[T], Label]) -> dict[Label, list[T]]:
    """Items by label, labels in the order they first appear."""
    groups: dict[Label, list[T]] = defaultdict(list)
    for item in items:
        groups[label(item)].append(item)
    return dict(groups)


def batch_band(cell: Cell) -> str:
    """The batch size, in bands of a factor of about ten."""
    return ("1", "2-15", "16-127", "128-1,023", "1,024 and more")[bisect_left((1, 15, 127, 1023), cell.batch)]


def time_band(cell: Cell) -> str:
    """The measured step time, in bands of a factor of ten."""
    if cell.measured is None:
        return "not measured"
    names = ("below 1 ms", "1-10 ms", "10-100 ms", "0.1-1 s", "1 s and more")
    return names[bisect_right((1e-3, 1e-2, 1e-1, 1.0), cell.measured)]
