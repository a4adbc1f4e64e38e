"""Bars, sparklines and curves made of characters, readable without colour."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A bar of ``share`` (0 to 1) times ``width`` characters, to an eighth of one; a share above 0 is never empty."""
    if share <= 0.0 or width < 1:
        return ""
    eighths = max(round(min(share, 1.0) * width * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def sparkline(values: Sequence[float]) -> str:
    """One character per value, its height on a log scale between the smallest and the largest; a blank for 0."""
    logs = [math.log(value) for value in values if value > 0.0]
    if not logs:
        return " " * len(values)
    low, span = min(logs), max(logs) - min(logs)
    top = len(_LEVELS) - 1
    return "".join(
        " " if value <= 0.0 else _LEVELS[round((math.log(value) - low) / span * top) if span else 0] for value in values
    )


def curves(series: Mapping[str, Sequence[float | None]], marks: Sequence[str], *, width: int, height: int) -> list[str]:
    """Lines of a plot: one letter per series over evenly spaced columns, the value on a log scale.

    ``marks`` gives the character of each series. Where two meet, ``*`` stands. The first line is the largest value.
    """
    known = [value for values in series.values() for value in values if value]
    columns = max((len(values) for values in series.values()), default=0)
    if not known or columns < 2:
        return []
    low, high = math.log(min(known)), math.log(max(known))
    grid = [[" "] * width for _ in range(height)]
    for values, mark in zip(series.values(), marks, strict=True):
        points = [(i * (width - 1) / (columns - 1), math.log(v)) for i, v in enumerate(values) if v]
        for x in range(width):
            y = _between(points, x)
            if y is None:
                continue
            row = round((high - y) / (high - low) * (height - 1)) if high > low else height // 2
            grid[row][x] = mark if grid[row][x] in (" ", mark) else "*"
    return ["".join(row).rstrip() for row in grid]


def _between(points: Sequence[tuple[float, float]], x: float) -> float | None:
    """The height at ``x`` on the line through the points; None outside of them."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 <= x <= x1:
            return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return None
