"""What all validators of published rows do: price each row, count what cannot be priced, print and write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from placer.calibration.validation.compare import Compared, compare, group_by, score
from placer.calibration.validation.run import say
from placer.calibration.validation.table import Table
from placer.errors import TraceError, UnknownGPU
from placer.files import write_new
from placer.printable import printable_text

Asked = TypeVar("Asked")
Row = TypeVar("Row")
#: The columns of ``errors``, and of ``op_errors``.
ERRORS = ("median error", "p90", "bias", "in interval")
OP_ERRORS = (*ERRORS, "within 2x")


@dataclass(frozen=True)
class Priced:
    """Something published beside its price: seconds, and the bounds of the predicted 90 % interval."""

    measured: float
    predicted: float
    low: float
    high: float


def errors(rows: Sequence[Compared]) -> tuple[str, ...]:
    """The median error, the 90th percentile, the median of predicted over measured, the share within the interval."""
    reached = score(rows)
    ratio = f"{reached.median_ratio:.2f}x"
    return f"{reached.median_error:.1%}", f"{reached.p90_error:.0%}", ratio, f"{reached.inside:.0%}"


def op_errors(rows: Sequence[Compared]) -> tuple[str, ...]:
    """The errors of single ops: also the share within a factor of two."""
    return (*errors(rows), f"{1.0 - score(rows).beyond_2x:.0%}")


def tables(
    titles: Mapping[str, Mapping[str, Sequence[Row]]],
    columns: Sequence[str],
    figures: Callable[[Sequence[Row]], Iterable[str]],
) -> Iterator[Table]:
    """A table for each title, a line for each of its groups; the first column says how many rows the group has."""
    for title, groups in titles.items():
        yield compare("", title, groups, columns, lambda rows: (str(len(rows)), *figures(rows)))


def grouped(rows: Iterable[Row], field: str) -> dict[str, list[Row]]:
    """The rows by what a field of theirs, or of its own, says, in its order."""
    return dict(sorted(group_by(rows, lambda row: str(attrgetter(field)(row))).items()))


def price_each(asked: Sequence[Asked], price: Callable[[Asked], Row], what: str, every: int = 50) -> Iterator[Row]:
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


def report(
    rows: Sequence[object], items: Iterable[Table | str], output: Path | None, words: Container[int] = (0,)
) -> int:
    """Print tables and lines of text as Markdown, and write the same. The exit code is 1 without any of ``rows``.

    ``words`` are the numbers of the columns that are aligned as words.
    """
    lines: list[str] = []
    for item in items:
        lines += [item] if isinstance(item, str) else ["", *item.markdown(words)]
    text = "\n".join(lines)
    print(printable_text(text))
    if output is not None:
        write_new(output, f"{text}\n".encode())
    return 0 if rows else 1
