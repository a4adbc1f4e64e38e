"""Texts for a terminal: sections as rich tables and lines, bars, and curves."""

from __future__ import annotations

import io
import random
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from placer.explanation.sections import Cell, Section
from placer.printable import printable, printable_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

#: Characters of a bar: it is not drawn where there is room for less than the first, and never longer than the second.
SHORTEST_BAR, LONGEST_BAR = 4, 20
#: Characters between two columns.
_BETWEEN = 3
#: Colours of the devices' bars, in order: terminals show them readably on dark and on light.
COLOURS = ("cyan", "magenta", "green", "blue")
#: The blank between a number and its unit: no line ends there.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|µs|ns|[kMGT]?B)\b)")
_NO_BREAK = "\N{NO-BREAK SPACE}"


def load_rich() -> None:
    """Import rich and keep the state of Python's random numbers, from which its first import draws.

    Call it before any other import of rich: printing a report must not change how the user's network is initialised.
    """
    state = random.getstate()
    try:
        import rich.style  # noqa: F401
    finally:
        random.setstate(state)


def styled(text: str, style: str = "") -> Text:
    """A rich text of placer's own: its line ends and brackets stay as they are."""
    load_rich()
    from rich.text import Text

    return Text(text, style=style)


def plain(parts: Iterable[Any], *, width: int, color: bool = False) -> str:
    """Lines and rich tables as text of at most ``width`` columns, without trailing blanks.

    Lines and whatever a table holds as a ``str`` are made printable here. A cell that is a rich ``Text`` is placer's
    own, and stays as it is.
    """
    load_rich()
    from rich.console import Console
    from rich.text import Text

    class Printable(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    file = io.StringIO()
    console = Printable(
        file=file,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
    )
    for part in parts:
        if isinstance(part, (str, Text)):
            console.print(_wrapped(part, width))
        else:
            console.print(part)
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines()) + "\n"


def _wrapped(line: str | Text, width: int) -> Text:
    """A line wrapped at spaces; list items hang."""
    text, style = (line, "") if isinstance(line, str) else (line.plain, line.style)
    hanging = "  " if text.startswith("- ") else ""
    lines = wrapped_lines(text, width, indent=hanging)
    return styled(printable_text("\n".join(lines)), str(style))


def wrapped_lines(text: str, width: int, *, indent: str = "") -> list[str]:
    """Lines of at most ``width`` columns; those after the first begin with ``indent``. No number leaves its unit."""
    lines = textwrap.wrap(_BEFORE_UNIT.sub(_NO_BREAK, text), width, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def render_sections(sections: Iterable[Section], *, width: int = 100, color: bool = False) -> str:
    """Sections alone, as text at most ``width`` columns wide."""
    return plain([part for section in sections for part in drawn(section, width)], width=width, color=color)


def drawn(section: Section, width: int) -> Iterator[Any]:
    """The parts of a section for ``plain``; none where it is empty."""
    if section.rows:
        yield drawn_table(section, width)
    elif section.items:
        yield styled(section.title, "bold")
    yield from (f"- {line}" for line in section.items)
    yield from section.after
    if section.items or section.after or (section.rows and not section.heads):
        yield ""


def drawn_table(section: Section, width: int) -> Table:
    """The table of a section; beside each column with bars there is one for these, where they have room."""
    heads = section.heads or [""] * len(section.rows[0])
    barred = [any(getattr(row[n], "share", None) is not None for row in section.rows) for n in range(len(heads))]
    taken = sum(max(map(len, column)) + _BETWEEN for column in zip(heads, *section.rows, strict=True))
    room = min((width - taken) // max(sum(barred), 1) - _BETWEEN, LONGEST_BAR)
    room = 0 if room < SHORTEST_BAR else room
    columns: list[str] = []
    for head, with_bar in zip(heads, barred, strict=True):
        columns += [head, ""] if with_bar and room else [head]
    table = new_table(section.title, columns)
    if not section.heads:
        table.box, table.show_header, table.padding = None, False, (0, 2, 0, 0)
        table.columns[1].justify = "right"
    for number in (*section.left, *([-1] if section.wordy else [])):
        table.columns[number].justify = "left"
    for number, row in enumerate(section.rows):
        cells: list[str | Text] = []
        for cell, with_bar in zip(row, barred, strict=True):
            cells.append(cell)
            if with_bar and room and isinstance(cell, Cell):
                cells.append(styled(bar(cell.share or 0.0, room), COLOURS[cell.number % len(COLOURS)]))
            elif with_bar and room:
                cells.append("")
        table.add_row(*cells, style="bold" if number in section.strong else "")
    return table


def new_table(title: str, columns: Sequence[str]) -> Table:
    """An empty table. The first column is text, columns without a name are bars, the others are numbers."""
    load_rich()
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        text = not number or not column
        table.add_column(
            column, justify="left" if text else "right", overflow="fold", no_wrap=not column and number > 0
        )
    return table


_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, width: int) -> str:
    """A bar of ``share`` (0 to 1) times ``width`` characters, to an eighth of one; a share above 0 is never empty."""
    if share <= 0.0 or width < 1:
        return ""
    eighths = max(round(min(share, 1.0) * width * 8), 1)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
