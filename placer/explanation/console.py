"""Building blocks of texts: loading rich without a side effect, lines and tables as plain text, bars and curves."""

from __future__ import annotations

import io
import itertools
import math
import random
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placer.printable import printable, printable_text
from placer.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

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
        file=file, width=width, force_terminal=color, color_system="standard" if color else None, highlight=False,
        emoji=False, markup=False, legacy_windows=False,
    )  # fmt: skip
    for part in parts:
        if isinstance(part, (str, Text)):
            console.print(_wrapped(part, width))
        else:
            console.print(part)
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines()) + "\n"


def _wrapped(line: str | Text, width: int) -> Text:
    """A line wrapped at spaces; list items hang."""
    from rich.text import Text

    text, style = (line, "") if isinstance(line, str) else (line.plain, line.style)
    hanging = "  " if text.startswith("- ") else ""
    text = _BEFORE_UNIT.sub(_NO_BREAK, text)
    filled = textwrap.fill(text, width, subsequent_indent=hanging, break_on_hyphens=False)
    return Text(printable_text(filled.replace(_NO_BREAK, " ")), style=style)


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
            y = _height_at(points, x)
            if y is None:
                continue
            row = round((high - y) / (high - low) * (height - 1)) if high > low else height // 2
            grid[row][x] = mark if grid[row][x] in (" ", mark) else "*"
    return ["".join(row).rstrip() for row in grid]


def _height_at(points: Sequence[tuple[float, float]], x: float) -> float | None:
    """The height at ``x`` on the line through the points; None outside of them."""
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 <= x <= x1:
            return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return None
