"""What all validators of published rows do: price each row, count what cannot be priced, write and print."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from placer.calibration.validation.compare import Compared, compare, group_by, score
from placer.calibration.validation.run import say
from placer.calibration.validation.table import Table, show
from placer.errors import TraceError, UnknownGPU
from placer.files import write_new
from placer.printable import printable_text

Asked = TypeVar("Asked")
Priced = TypeVar("Priced")
#: The columns of ``errors``.
ERRORS = ("median error", "p90", "bias", "in interval")


def errors(rows: Sequence[Compared]) -> tuple[str, ...]:
    """The median error, the 90th percentile, the median of predicted over measured, the share within the interval."""
    reached = score(rows)
    ratio = f"{reached.median_ratio:.2f}x"
    return f"{reached.median_error:.1%}", f"{reached.p90_error:.0%}", ratio, f"{reached.inside:.0%}"


def tables(
    titles: Mapping[str, Mapping[str, Sequence[Priced]]],
    columns: Sequence[str],
    figures: Callable[[Sequence[Priced]], Iterable[str]],
) -> Iterator[Table]:
    """A table for each title, a line for each of its groups; the first column says how many rows the group has."""
    for title, groups in titles.items():
        yield compare("", title, groups, columns, lambda rows: (str(len(rows)), *figures(rows)))


def grouped(rows: Iterable[Priced], field: str) -> dict[str, list[Priced]]:
    """The rows by what a field of theirs says, in its order."""
    return dict(sorted(group_by(rows, lambda row: str(getattr(row, field))).items()))


def price_each(
    asked: Sequence[Asked], price: Callable[[Asked], Priced], what: str, every: int = 50
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
    for reason, number in left_out.most_common():
        say(f"{number} {what} left out: {reason}")


def publish(rows: Sequence[Mapping[str, Any]], items: Iterable[Table | str], output: Path | None) -> int:
    """Write a record of the rows, a line of JSON each, and print the tables. The exit code is 1 without any row."""
    if output is not None:
        write_new(output, ("\n".join(map(json.dumps, rows)) + "\n").encode())
    for item in items:
        lines = [item] if isinstance(item, str) else ["", *item.markdown()]
        print(printable_text("\n".join(lines)))
    return 0 if rows else 1


def report(table: Table, notes: Sequence[str], words: Container[int], output: Path | None) -> int:
    """Print a table and notes below it, and write both as Markdown. The exit code is 1 without any row."""
    show([table, "", *notes], sys.stdout)
    if output is not None:
        lines = [*table.markdown(words), "", *(f"- {note}" for note in notes)]
        write_new(output, ("\n".join(lines) + "\n").encode())
    return 0 if table.rows else 1
