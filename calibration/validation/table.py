"""A table of a validation report: drawn by rich on a terminal, plain aligned text in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from placer.explanation import load_rich

#: Columns of words, beside the first.
_TEXT_COLUMNS = ("why", "where", "variant", "reported")


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of text; columns of numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def plain(table: Table) -> str:
    """Aligned text, two blanks between columns, no line ever wrapped."""
    lines = [table.columns, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    texts = [
        "  ".join(
            cell.ljust(width) if _left(table, i) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(["", table.title, *texts])


def draw(table: Table, stream: TextIO) -> None:
    """Draw it with rich."""
    load_rich()
    from rich.console import Console
    from rich.table import Table as RichTable

    drawn = RichTable(title=table.title, title_justify="left")
    for i, name in enumerate(table.columns):
        drawn.add_column(name, justify="left" if _left(table, i) else "right")
    for row in table.rows:
        drawn.add_row(*row)
    Console(file=stream, markup=False, highlight=False).print(drawn)


def present(table: Table, notes: Iterable[str], stream: TextIO | None = None) -> None:
    """A table and a line for each note: drawn on a terminal, else as plain text. ``stream`` None: stdout, plain."""
    if stream is not None and stream.isatty():
        draw(table, stream)
    else:
        print(plain(table), file=stream)
    print("\n".join(["", *notes]), file=stream)


def markdown(table: Table, notes: Iterable[str], alignment: str) -> Iterator[str]:
    """The same for a page: a table without its title, then a list. ``alignment`` is the row under the heads."""
    yield f"| {' | '.join(table.columns)} |"
    yield alignment
    for row in table.rows:
        yield f"| {' | '.join(row)} |"
    yield ""
    for note in notes:
        yield f"- {note}"


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Into a file, whose folder is made; nowhere for None."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _left(table: Table, column: int) -> bool:
    return column == 0 or table.columns[column] in _TEXT_COLUMNS
