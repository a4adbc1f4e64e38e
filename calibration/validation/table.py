"""A table of a validation: plain aligned text, as wide as it is in a pipe, and Markdown on a page."""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from placer.printable import printable_text
from placer.sections import Section, render

#: Columns of words, beside the first.
_TEXT_COLUMNS = ("why", "where", "variant", "reported", "content")
#: Characters of a line in a pipe: no line is ever wrapped there.
_NO_LIMIT = 10_000


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of text; columns of numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self, width: int = _NO_LIMIT) -> str:
        """Aligned in lines of at most this width."""
        left = [number for number, name in enumerate(self.columns) if name in _TEXT_COLUMNS]
        rows = [self.columns, *self.rows]
        return f"{self.title}\n{render([Section(rows=rows, left=left)], width=width)}".rstrip()

    def markdown(self, words: Container[int] = (0,)) -> Iterator[str]:
        """The lines of a table for a page; columns are right-aligned, but for those of ``words``."""
        yield f"| {' | '.join(self.columns)} |"
        yield f"|{'|'.join('---' if i in words else '--:' for i in range(len(self.columns)))}|"
        yield from (f"| {' | '.join(row)} |" for row in self.rows)


def show(items: Iterable[Table | str], stream: TextIO) -> None:
    """Print tables and lines of text."""
    width = shutil.get_terminal_size().columns if stream.isatty() else _NO_LIMIT
    for item in items:
        stream.write(printable_text(f"{item}\n") if isinstance(item, str) else f"\n{item.text(width)}\n")
