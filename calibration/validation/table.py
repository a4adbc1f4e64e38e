"""A table of a validation report: plain aligned text, as wide as it is in a pipe, and Markdown on a page."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from placer.explanation import new_table, plain
from placer.files import write_new
from placer.printable import printable_text

#: Columns of words, beside the first.
_TEXT_COLUMNS = ("why", "where", "variant", "reported")
#: Characters of a line in a pipe: no line is ever wrapped there.
_NO_LIMIT = 10_000


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of text; columns of numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def show(items: Iterable[Table | str], stream: TextIO) -> None:
    """Print tables and lines of text."""
    width = shutil.get_terminal_size().columns if stream.isatty() else _NO_LIMIT
    for item in items:
        stream.write(printable_text(f"{item}\n") if isinstance(item, str) else f"\n{_aligned(item, width)}\n")


def _aligned(table: Table, width: int) -> str:
    drawn = new_table(table.title, table.columns)
    drawn.box = None
    for column in drawn.columns:
        if column.header in _TEXT_COLUMNS:
            column.justify = "left"
    for row in table.rows:
        drawn.add_row(*row)
    return plain([drawn], width=width).rstrip()


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], words: Container[int] = (0,)) -> Iterator[str]:
    """The lines of a table for a page; columns are right-aligned, but for those of ``words``."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join('---' if i in words else '--:' for i in range(len(columns)))}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Into a new file, whose folder is made; nowhere for None. Raises PlacerError where something is there."""
    if output is not None:
        write_new(output, ("\n".join(lines) + "\n").encode())


def print_lines(lines: Iterable[str]) -> None:
    """To stdout, printable."""
    print(printable_text("\n".join(lines)))


def report(table: Table, notes: Sequence[str], words: Container[int], output: Path | None) -> None:
    """Print a table and notes below it, and write both as Markdown."""
    show([table, "", *notes], sys.stdout)
    write_lines([*markdown(table.columns, table.rows, words), "", *(f"- {note}" for note in notes)], output)
