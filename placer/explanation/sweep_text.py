"""A Sweep as text: a row per value with intervals, a sparkline per device, the curves, and where the choice turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.explanation.bars import curves, sparkline
from placer.explanation.console import plain
from placer.explanation.data import ExplanationData
from placer.explanation.sweep import Sweep, answer
from placer.explanation.tables import new_table
from placer.explanation.verdict import sureness
from placer.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table

#: Size of the plot in characters, and the marks of the devices in it.
PLOT_WIDTH, PLOT_HEIGHT = 60, 12
MARKS = "ox+#"
#: What the chosen device is, by what was made small.
_BETTER = {"time": "faster", "cost": "cheaper", "energy": "less energy"}


def render(sweep: Sweep, *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide."""
    parts = [_table(sweep), *_lines(sweep), "", *_plot(sweep, width)]
    parts += [
        *sweep.legend,
        *_meetings(sweep),
        turns(sweep),
        *(f"{sweep.named(value)}: {reason}" for value, reason in sweep.failed.items()),
    ]
    return plain(parts, width=width, color=color)


def turns(sweep: Sweep) -> str:
    """One sentence on which device is chosen where."""
    (_, first), *later = sweep.verdicts()
    if not later:
        return f"{first} at every {sweep.axis}."
    return f"{first} first; " + "; ".join(f"{device} from {sweep.named(value)} on" for value, device in later) + "."


def _meetings(sweep: Sweep) -> list[str]:
    """About where the curves meet: between two of the values that were priced."""
    found = [sweep.turn(value) for value, _ in sweep.crossovers()[1:]]
    return [f"The two are level at about {sweep.named(where)}." for where in found if where is not None]


def _table(sweep: Sweep) -> Table:
    # A single device is no choice that one could be sure of.
    compared = any(row.decision.speedup is not None for row in sweep.rows.values())
    columns = [column for name in sweep.headings.values() for column in (name, "90% between")]
    table = new_table(sweep.title, [sweep.over, *columns, *([_BETTER[sweep.objective], "sure"] if compared else [])])
    known = {name: sweep.times(name) for name in sweep.devices}
    turning = {value for value, _ in sweep.verdicts()[1:]}
    for index, (value, row) in enumerate(sweep.rows.items()):
        cells: list[str] = []
        for name in sweep.devices:
            time = known[name][index]
            cells += ["-", "-"] if time is None else [format_seconds(time[0]), _between(time[1], time[2])]
        said = f"{'→ ' if value in turning else ''}{answer(row)}"
        cells += [said, _sureness(row)] if compared else []
        table.add_row(f"{value:,}", *cells, style="bold" if value in turning else None)
    return table


def _lines(sweep: Sweep) -> list[str]:
    """A sparkline per device, each on its own scale."""
    if len(sweep.rows) < 2:
        return []
    longest = max(map(len, sweep.devices))
    lines = []
    for name in sweep.devices:
        values = [time[0] if time else 0.0 for time in sweep.times(name)]
        shown = [value for value in values if value]
        ends = f"{format_seconds(shown[0])} to {format_seconds(shown[-1])}" if shown else ""
        lines.append(f"{name:<{longest}}  {sparkline(values)}  {ends}")
    return lines


def _plot(sweep: Sweep, width: int) -> list[str]:
    """The curves on log scales, and a mark on the axis where the choice turns."""
    devices = sweep.devices
    if len(devices) < 2 or len(devices) > len(MARKS) or len(sweep.rows) < 2:
        return []
    room = min(PLOT_WIDTH, width - 12)
    series = {name: [time[0] if time else None for time in sweep.times(name)] for name in devices}
    known = [value for values in series.values() for value in values if value]
    labels = {0: format_seconds(max(known)), PLOT_HEIGHT - 1: format_seconds(min(known))}
    drawn = curves(series, MARKS[: len(devices)], width=room, height=PLOT_HEIGHT)
    lines = [f"{labels.get(row, ''):>9} │{line}" for row, line in enumerate(drawn)]
    values = list(sweep.rows)
    axis = ["─"] * room
    for value, _ in sweep.crossovers()[1:]:
        axis[round(values.index(value) * (room - 1) / (len(values) - 1))] = "┴"
    first, last = f"{values[0]:,}", f"{values[-1]:,}"
    lines += [" " * 10 + "└" + "".join(axis), " " * 11 + first + last.rjust(room - len(first))]
    legend = ", ".join(f"{mark} {name}" for mark, name in zip(MARKS, devices, strict=False))
    return [*lines, f"{'':11}{legend}, * both; ┴ the choice turns", ""]


def _between(low: float, high: float) -> str:
    """An interval, its unit once where both ends have it: ``1.20–1.50 ms``."""
    (a, unit), (b, other) = format_seconds(low).split(" "), format_seconds(high).split(" ")
    return f"{a}–{b} {other}" if unit == other else f"{a} {unit}–{b} {other}"


def _sureness(row: ExplanationData) -> str:
    decision = row.decision
    return "-" if decision.confidence is None or decision.speedup is None else sureness(decision.confidence)
