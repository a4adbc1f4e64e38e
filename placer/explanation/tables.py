"""Building blocks of the tables: an empty table, bars, and cells of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from placer.explanation.bars import bar
from placer.explanation.console import load_rich
from placer.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

#: Op families and layers below this share of the time on every device are folded into one row.
SMALL = 0.01
#: A time is marked as a guess (``MARK``) where more than this share of it is not backed by calibration.
GUESS = 0.1
MARK = "~"
#: Characters of a bar: it is not drawn where there is room for less than the first, and never longer than the second.
SHORTEST_BAR, LONGEST_BAR = 4, 20
#: Colours of the devices' bars, in order: terminals show them readably on dark and on light.
COLOURS = ("cyan", "magenta", "green", "blue")


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


def with_bars(names: Sequence[str], drawn: Sequence[str], room: int) -> list[str]:
    """The names of columns, each of the ``drawn`` ones followed by one for its bar where there is ``room``."""
    return [column for name in names for column in ((name, "") if name in drawn and room else (name,))]


def bar_width(width: int, taken: int, bars: int) -> int:
    """Characters for each of some bars beside ``taken`` others; 0 where that is too few to draw any."""
    room = (width - taken) // bars - 3
    return 0 if room < SHORTEST_BAR else min(room, LONGEST_BAR)


def columns_width(names: Sequence[str]) -> int:
    """Characters that columns of times under these names take, with the blanks between them."""
    return sum(max(13, len(name) + 4) for name in names)


def drawn_bar(seconds: float, whole: float, room: int, number: int) -> Text:
    """The bar of a part of ``whole`` in the colour of device ``number``."""
    from rich.text import Text

    return Text(bar(seconds / whole if whole else 0.0, room), style=COLOURS[number % len(COLOURS)])


class Guess(str):
    """A cell with a time that is marked as a guess."""

    __slots__ = ()


def time_cell(seconds: float, unsure: float) -> str:
    """A time in seconds as text, marked where much of it (``unsure`` seconds) is a guess."""
    text = format_seconds(seconds)
    return Guess(MARK + text) if unsure > GUESS * seconds else text


def shows_guess(table: Table) -> bool:
    """Whether a time in it is marked as a guess."""
    return any(isinstance(cell, Guess) for column in table.columns for cell in column.cells)
