"""A table of a validation report: drawn by rich on a terminal, plain aligned text in a pipe, Markdown on a page."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeVar

from placer.explanation import load_rich
from placer.printable import printable, printable_text

T = TypeVar("T")

#: Columns of words, beside the first.
_TEXT_COLUMNS = ("why", "where", "variant", "reported")


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of text; columns of numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def show(items: Iterable[Table | str], stream: TextIO) -> None:
    """Print tables and lines of text: tables are drawn on a terminal, else plain."""
    for item in items:
        if isinstance(item, str):
            stream.write(printable_text(f"{item}\n"))
        elif stream.isatty():
            _draw(item, stream)
        else:
            stream.write(printable_text(_plain(item) + "\n"))


def _plain(table: Table) -> str:
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


def _draw(table: Table, stream: TextIO) -> None:
    load_rich()
    from rich.console import Console
    from rich.table import Table as RichTable

    drawn = RichTable(title=table.title, title_justify="left")
    for i, name in enumerate(table.columns):
        drawn.add_column(name, justify="left" if _left(table, i) else "right")
    for row in table.rows:
        drawn.add_row(*map(printable, row))
    Console(file=stream, markup=False, highlight=False).print(drawn)


def _left(table: Table, column: int) -> bool:
    return column == 0 or table.columns[column] in _TEXT_COLUMNS


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], words: Container[int] = (0,)) -> Iterator[str]:
    """The lines of a table for a page; columns are right-aligned, but for those of ``words``."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join('---' if i in words else '--:' for i in range(len(columns)))}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def markdown_by_group(
    columns: Sequence[str], groups: Mapping[str, Sequence[T]], figures: Callable[[Sequence[T]], Iterable[str]]
) -> Iterator[str]:
    """After an empty line, a row for each group that is not empty: its name, how many it has, and its ``figures``."""
    yield ""
    yield from markdown(columns, [(name, str(len(g)), *figures(g)) for name, g in groups.items() if g])


def write_lines(lines: Iterable[str], output: Path | None) -> None:
    """Into a file, whose folder is made; nowhere for None."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def print_lines(lines: Iterable[str]) -> None:
    """To stdout, printable."""
    print(printable_text("\n".join(lines)))


def report(table: Table, notes: Sequence[str], words: Container[int], output: Path | None) -> None:
    """Print a table and notes below it, and write both as Markdown."""
    print_lines([_plain(table), "", *notes])
    write_lines([*markdown(table.columns, table.rows, words), "", *(f"- {note}" for note in notes)], output)
