"""The tables of whole steps: by device, by part, and by number of threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from placer.explanation.bars import bar
from placer.explanation.data import ExplanationData
from placer.explanation.provenance import all_calibrated, headings, kind
from placer.explanation.step_parts import ONE_TIME, PARTS, first_step, shown_parts, step_parts
from placer.explanation.tables import COLOURS, GUESS, MARK, bar_width, columns_width, drawn_bar, new_table, with_bars
from placer.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def steps(explanation: ExplanationData, width: int) -> Table | None:
    """One row per device, its step as a bar on a common scale; None for a single device."""
    from rich.table import Table
    from rich.text import Text

    if len(explanation.devices) < 2:
        return None
    longest = max(row.step_seconds for row in explanation.devices.values())
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    called = headings(explanation.devices)
    room = bar_width(width - 40, max(map(len, called.values())), 1)
    for number, (name, row) in enumerate(explanation.devices.items()):
        drawn = Text(bar(row.step_seconds / longest if longest else 0.0, room), style=COLOURS[number % len(COLOURS)])
        mark = MARK if 1.0 - row.coverage > GUESS else ""
        cells = (mark + format_seconds(row.step_seconds), f"{format_seconds(row.low)} to {format_seconds(row.high)}")
        style = "bold" if name == explanation.decision.device else ""
        table.add_row(called[name], Text(cells[0], justify="right"), drawn, Text(cells[1]), style=style)
    return table


def made_of(explanation: ExplanationData, width: int) -> Table | None:
    """One row per part of a step, one column per device; the parts add up to the step."""
    names = list(explanation.devices)
    if not names:
        return None
    rows = explanation.devices
    parts = {name: step_parts(explanation, name) for name in names}
    shown = shown_parts(parts)
    called = list(headings(rows).values())
    room = bar_width(width, 14 + columns_width(called), len(names))
    table = new_table(f"What {explanation.one} is made of", ["", *with_bars(called, called, room)])

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
    add(explanation.unit, (format_seconds(rows[name].step_seconds) for name in names), style="bold")
    add("  90% from", (format_seconds(rows[name].low) for name in names))
    add("  90% to", (format_seconds(rows[name].high) for name in names))
    if any(row.one_time_seconds for row in rows.values()):
        add(f"first {explanation.unit}", (_time(first_step(rows[name])) for name in names), style="bold")
        for key in shown_parts({name: rows[name].one_time for name in names}):
            add(f"  {ONE_TIME.get(key, key)}", (_time(rows[name].one_time.get(key)) for name in names))
    totals = {name: rows[name].total_seconds for name in names}
    if any(total is not None for total in totals.values()):
        add("in all", map(_time, totals.values()))
    if any(row.bounded_by for row in rows.values()):
        add("bounded by", (rows[name].bounded_by or "-" for name in names))
    add(
        "needs memory",
        (format_bytes(rows[n].peak_memory_bytes) + ("" if rows[n].fits else " (too much)") for n in names),
    )
    if all_calibrated(rows):
        add("calibrated", (f"{rows[name].coverage:.0%}" for name in names))
    else:
        add("numbers", (kind(name, rows[name].provenance) for name in names))
        add("measured", (f"{rows[name].coverage:.0%}" for name in names))
    return table


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def threads(explanation: ExplanationData) -> Table | None:
    """One row per number of CPU threads that was compared; None where there was only one."""
    tried = explanation.decision.thread_options
    if len(tried) < 2:
        return None
    table = new_table("A step on the CPU by number of threads", ["threads", "step", "90% from", "90% to"])
    for option in tried:
        times = [format_seconds(value) for value in (option.step_seconds, option.low, option.high)]
        chosen = explanation.decision.device == "cpu" and option.threads == explanation.decision.threads
        table.add_row(f"{option.threads}", *times, style="bold" if chosen else None)
    return table
