"""The tables of ``placer explain``: the devices' steps, what a step is made of, numbers of threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from placer.explanation.bars import bar
from placer.explanation.bounds import BOUNDS
from placer.explanation.explanation import Explanation
from placer.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

#: Op families and layers below this share of the time on every device are folded into one row.
SMALL = 0.01
#: A time is marked as a guess where more than this share of it is not backed by calibration.
GUESS = 0.1
MARK = "~"
#: Bars are drawn where there is room for this many characters, and no longer than that.
SHORTEST_BAR, LONGEST_BAR = 4, 20
#: Colours of the devices' bars, in order: terminals show them readably on dark and on light.
COLOURS = ("cyan", "magenta", "green", "blue")
#: What the parts of a step are called.
PARTS = {
    "compute": "compute",
    "arithmetic": "arithmetic",
    "memory": "memory traffic",
    "overhead": "starting ops",
    "optimizer": "optimizer",
    "dispatch": "dispatch",
    "launch": "launch",
    "copy": "copies",
    "sync": "sync",
}


def new_table(title: str, columns: Sequence[str]) -> Table:
    """An empty table: the first column is text, those without a name are bars, the others are numbers."""
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


def steps(explanation: Explanation, width: int) -> Table | None:
    """One row per device, its step as a bar on a common scale; nothing to compare with a single device."""
    from rich.table import Table
    from rich.text import Text

    if len(explanation.devices) < 2:
        return None
    longest = max(row.step_seconds for row in explanation.devices.values())
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    room = bar_width(width - 40, max(map(len, explanation.devices)), 1)
    for number, (name, row) in enumerate(explanation.devices.items()):
        drawn = Text(bar(row.step_seconds / longest if longest else 0.0, room), style=COLOURS[number % len(COLOURS)])
        mark = MARK if 1.0 - row.coverage > GUESS else ""
        cells = (mark + format_seconds(row.step_seconds), f"{format_seconds(row.low)} to {format_seconds(row.high)}")
        style = "bold" if name == explanation.decision.device else ""
        table.add_row(name, Text(cells[0], justify="right"), drawn, Text(cells[1]), style=style)
    return table


def made_of(explanation: Explanation, width: int) -> Table | None:
    """One row per part of a step, one column per device; the parts add up to the step."""
    names = list(explanation.devices)
    if not names:
        return None
    rows = explanation.devices
    parts = {name: step_parts(explanation, name) for name in names}
    shown = shown_parts(parts)
    room = bar_width(width, 14 + 13 * len(names), len(names))
    table = new_table("What a step is made of", ["", *with_bars(names, names, room)])

    def add(label: str, texts: Iterable[str], shares: Mapping[str, float] | None = None, style: str = "") -> None:
        cells: list[str | Text] = []
        for number, (name, text) in enumerate(zip(names, texts, strict=True)):
            cells.append(text)
            if room:
                cells.append(drawn_bar((shares or {}).get(name, 0.0), rows[name].step_seconds, room, number))
        table.add_row(label, *cells, style=style)

    for key in shown:
        seconds = {name: parts[name].get(key, 0.0) for name in names}
        add(PARTS.get(key, key), (format_seconds(seconds[name]) for name in names), seconds)
    add("step", (format_seconds(rows[name].step_seconds) for name in names), style="bold")
    add("  90% from", (format_seconds(rows[name].low) for name in names))
    add("  90% to", (format_seconds(rows[name].high) for name in names))
    if any(row.one_time_seconds for row in rows.values()):
        add("once", (format_seconds(rows[name].one_time_seconds) for name in names))
    totals = {name: rows[name].total_seconds for name in names}
    if any(total is not None for total in totals.values()):
        add("in all", ("-" if total is None else format_seconds(total) for total in totals.values()))
    add(
        "needs memory",
        (format_bytes(rows[n].peak_memory_bytes) + ("" if rows[n].fits else " (too much)") for n in names),
    )
    add("calibrated", (f"{rows[name].coverage:.0%}" for name in names))
    return table


def step_parts(explanation: Explanation, device: str) -> dict[str, float]:
    """Seconds of a step by part, in the order they are shown; they add up to the step.

    Where it is known what limits the ops, that stands in the place of ``compute``.
    """
    components = dict(explanation.devices[device].components)
    known = explanation.bounds.get(device) or {}
    if not known:
        return components
    components.pop("compute", None)
    return {**{name: known.get(name, 0.0) for name in BOUNDS if any(known.values())}, **components}


def shown_parts(parts: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The names of the parts that some device has, in order; what is nothing everywhere is no row."""
    return list(dict.fromkeys(key for found in parts.values() for key, seconds in found.items() if seconds))


def threads(explanation: Explanation) -> Table | None:
    """One row per number of CPU threads that was compared."""
    tried = explanation.decision.thread_options
    if len(tried) < 2:
        return None
    table = new_table("A step on the CPU by number of threads", ["threads", "step", "90% from", "90% to"])
    for option in tried:
        times = [format_seconds(value) for value in (option.step_seconds, option.low, option.high)]
        chosen = explanation.decision.device == "cpu" and option.threads == explanation.decision.threads
        table.add_row(f"{option.threads}", *times, style="bold" if chosen else None)
    return table


def bar_width(width: int, taken: int, bars: int) -> int:
    """Characters for each of some bars beside ``taken`` others; 0 where that is too few to draw any."""
    room = (width - taken) // bars - 3
    return 0 if room < SHORTEST_BAR else min(room, LONGEST_BAR)


def drawn_bar(seconds: float, whole: float, room: int, number: int) -> Text:
    """The bar of a part of ``whole`` in the colour of device ``number``."""
    from rich.text import Text

    return Text(bar(seconds / whole if whole else 0.0, room), style=COLOURS[number % len(COLOURS)])


def time_cell(seconds: float, unsure: float) -> str:
    """The time, marked where much of it is a guess."""
    return (MARK if unsure > GUESS * seconds else "") + format_seconds(seconds)
