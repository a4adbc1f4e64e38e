"""Published times beside their prices: what all such comparisons count, write and print."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from placer.calibration.validation.scores import group_by
from placer.calibration.validation.table import markdown, print_lines, write_lines
from placer.errors import TraceError, UnknownGPU

Asked = TypeVar("Asked")
Priced = TypeVar("Priced")
#: The columns of ``error_figures``.
ERRORS = ("median error", "p90", "bias", "in interval")


class Compared(Protocol):
    """A published time beside its price, and the bounds of that; in seconds."""

    @property
    def measured(self) -> float: ...
    @property
    def predicted(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...


def error_figures(rows: Sequence[Compared]) -> Iterator[str]:
    """The median error, the 90th percentile, the bias, and the share within the interval."""
    ratio = np.array([row.predicted / row.measured for row in rows])
    error = np.abs(ratio - 1.0)
    yield f"{np.median(error):.1%}"
    yield f"{np.quantile(error, 0.9):.0%}"
    yield f"{np.median(ratio):.2f}x"
    yield f"{np.mean([row.low <= row.measured <= row.high for row in rows]):.0%}"


@dataclass(frozen=True)
class Comparison(Generic[Priced]):
    """The tables of one kind of rows: what a row is called, and the ``figures`` of a group, under ``columns``."""

    counted: str
    columns: tuple[str, ...]
    figures: Callable[[Sequence[Priced]], Iterable[str]]

    def table(self, title: str, groups: Mapping[str, Sequence[Priced]]) -> Iterator[str]:
        """The Markdown of a table, after an empty line: a line for each group that is not empty."""
        lines = [(name, str(len(rows)), *self.figures(rows)) for name, rows in groups.items() if rows]
        yield ""
        yield from markdown((title, self.counted, *self.columns), lines)

    def table_by(self, title: str, rows: Iterable[Priced], label: Callable[[Priced], str]) -> Iterator[str]:
        """The same with the rows in groups by their label."""
        return self.table(title, dict(sorted(group_by(rows, label).items())))


def price_each(
    asked: Sequence[Asked], price: Callable[[Asked], Priced], what: str, say: Callable[[str], Any], every: int = 50
) -> Iterator[Priced]:
    """The price of each that can be built and traced. The others are counted by reason in the last lines said."""
    left_out: Counter[str] = Counter()
    for number, one in enumerate(asked, 1):
        try:
            priced = price(one)
        except (TraceError, UnknownGPU, ImportError) as error:
            left_out[str(error).partition(":")[0]] += 1
            continue
        yield priced
        if number % every == 0:
            say(f"{number} of {len(asked)} {what}")
    for reason, count in left_out.most_common():
        say(f"{count} {what} left out: {reason}")


def publish(rows: Sequence[Mapping[str, Any]], tables: Iterable[str], output: Path | None) -> int:
    """Write a record of the rows, a line of JSON each, and print the tables. The exit code is 1 without any row."""
    write_lines((json.dumps(row) for row in rows), output)
    print_lines(tables)
    return 0 if rows else 1
