"""Explanations of one workload over a range of batch sizes or of numbers of steps, and where the choice turns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from placer.decision import Apart
from placer.explanation.console import curves, new_table, plain, sparkline
from placer.explanation.data import ExplanationData
from placer.explanation.sentences import headings, legend, sureness
from placer.pricing import Cost
from placer.units import format_seconds

if TYPE_CHECKING:
    from rich.table import Table

#: What the parts of a job on several devices are called among the devices.
APART = "apart"
#: What varies, in words, and what is counted of it.
_AXES = {"batch": "batch size", "steps": "number of steps", "count": "steps", "repeats": "number of repeats"}
_COUNTED = {"steps": "steps", "count": "steps", "repeats": "repeats"}


@dataclass(frozen=True)
class Sweep:
    """Explanations by value of ``over``: batch or steps, of a job batch or count of its ``part``, or repeats.

    ``failed`` says why a value has none.
    """

    over: str
    rows: Mapping[int, ExplanationData]
    failed: Mapping[int, str] = field(default_factory=dict)
    part: str = ""

    @property
    def axis(self) -> str:
        """What varies, in words."""
        return _AXES[self.over] + (f" of {self.part}" if self.part else "")

    @property
    def in_all(self) -> bool:
        """Whether its times are those of a whole run, what is paid once included, and not of one step or job."""
        return self.over in ("steps", "repeats")

    @property
    def objective(self) -> str:
        """What the choices make small: time, cost or energy."""
        return next((row.decision.objective for row in self.rows.values()), "time")

    @property
    def title(self) -> str:
        """What its times are, and what they depend on."""
        unit = "of the job" if self.part else "of a step"
        return f"Seconds {'in all' if self.in_all else unit} by {self.axis}"

    def named(self, value: float) -> str:
        """A value in words: ``batch 64``, ``64 steps``."""
        what = f"batch {value:,.0f}" if self.over == "batch" else f"{value:,.0f} {_COUNTED[self.over]}"
        return f"{what} of {self.part}" if self.part else what

    @property
    def devices(self) -> list[str]:
        """All that is compared: devices, and the parts of a job apart where that was chosen."""
        apart = [APART] * any(chosen(row) == APART for row in self.rows.values())
        return [*self._any_rows, *apart]

    @property
    def headings(self) -> dict[str, str]:
        """What each device is called above its numbers."""
        marked = headings(self._any_rows)
        return {name: marked.get(name, name) for name in self.devices}

    @property
    def legend(self) -> list[str]:
        """One line for each mark in ``headings``."""
        return legend(self._any_rows)

    @property
    def _any_rows(self) -> dict[str, Cost]:
        """A row of each device."""
        return {name: row for found in self.rows.values() for name, row in found.devices.items()}

    def times(self, device: str) -> list[tuple[float, float, float] | None]:
        """Seconds, low and high at each value: of the whole run over numbers of steps or repeats, else of one."""
        return [self._time(value, _row(row, device)) for value, row in self.rows.items()]

    def crossovers(self) -> list[tuple[int, str]]:
        """(value, device) of the first value, and of each where the choice differs from the value before."""
        found: list[tuple[int, str]] = []
        for value, row in self.rows.items():
            if not found or found[-1][1] != chosen(row):
                found.append((value, chosen(row)))
        return found

    def verdicts(self) -> list[tuple[int, str]]:
        """(value, verdict) of the first value, and of each where the verdict differs from the one before."""
        found: list[tuple[int, str]] = []
        for value, row in self.rows.items():
            if not found or found[-1][1] != answer(row):
                found.append((value, answer(row)))
        return found

    def turn(self, value: int) -> float | None:
        """About where the two choices take equal time between the value before ``value`` and ``value``; None: nowhere.

        The logarithm of the two times' ratio is interpolated linearly over the logarithm of the value. None where time
        is not what turns the choice.
        """
        values = list(self.rows)
        index = values.index(value)
        if not index or self.objective != "time":
            return None
        old, new = chosen(self.rows[values[index - 1]]), chosen(self.rows[value])
        gaps = []
        for i in (index - 1, index):
            a, b = self.times(old)[i], self.times(new)[i]
            if a is None or b is None or min(a[0], b[0]) <= 0.0:
                return None
            gaps.append(math.log(a[0] / b[0]))
        if gaps[0] == gaps[1] or not gaps[0] <= 0.0 <= gaps[1]:
            return None
        share = -gaps[0] / (gaps[1] - gaps[0])
        return float(values[index - 1] * (value / values[index - 1]) ** share)

    def _time(self, value: int, row: Cost | Apart | None) -> tuple[float, float, float] | None:
        if row is None:
            return None
        if not self.in_all:
            return row.step_seconds, row.low, row.high
        once = row.one_time_seconds
        return once + value * row.step_seconds, once + value * row.low, once + value * row.high

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        values = {
            "schema": 1,
            "sweep": self.over,
            **({"part": self.part} if self.part else {}),
            "rows": [
                {
                    self.over: value,
                    "choice": chosen(row),
                    "verdict": answer(row),
                    "confidence": row.decision.confidence,
                    "devices": {name: asdict(device) for name, device in row.devices.items()},
                    **({"apart": asdict(row.apart)} if row.apart is not None else {}),
                }
                for value, row in self.rows.items()
            ],
            "failed": {str(value): reason for value, reason in self.failed.items()},
            "crossovers": [{self.over: value, "choice": device} for value, device in self.crossovers()],
        }
        return json.dumps(values, indent=2, allow_nan=False) + "\n"


def chosen(row: ExplanationData) -> str:
    """The chosen device; ``apart`` where the parts of a job go to several."""
    return APART if row.apart is not None and row.apart.chosen else row.decision.device


def answer(row: ExplanationData) -> str:
    """The choice; ``about the same`` for a tie."""
    return row.decision.verdict if row.decision.tie else chosen(row)


def _row(row: ExplanationData, device: str) -> Cost | Apart | None:
    if device != APART:
        return row.devices.get(device)
    return row.apart if chosen(row) == APART else None


#: Size of the plot in characters, and the marks of the devices in it.
PLOT_WIDTH, PLOT_HEIGHT = 60, 12
MARKS = "ox+#"
#: What the chosen device is, by what was made small.
_BETTER = {"time": "faster", "cost": "cheaper", "energy": "less energy"}


def render_sweep(sweep: Sweep, *, width: int = 100, color: bool = False) -> str:
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
