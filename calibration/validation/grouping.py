"""Groups what a report counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
Label = TypeVar("Label", bound=Hashable)


def group_by(items: Iterable[T], label: Callable[[T], Label]) -> dict[Label, list[T]]:
    """Items by label, labels in the order they first appear."""
    groups: dict[Label, list[T]] = defaultdict(list)
    for item in items:
        groups[label(item)].append(item)
    return dict(groups)
