"""A fleet as text and as a page: the answer in a line, then a row for every machine; alike ones stand on one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from placer.decision import MANY, without_maker
from placer.explanation import (
    Section,
    kind,
    kind_mark,
    legend,
    load_rich,
    new_table,
    plain,
    render_page,
    svg,
    workload_line,
)
from placer.fleets.data import LIMITS, FleetData, FleetRow, needed_memory
from placer.printable import printable
from placer.units import format_count, format_dollars, format_duration, format_interval, format_joules

#: Lines of a long list that are shown, beside the Pareto set; a list that is not much longer is shown whole.
SHOWN = 20
#: A word that tells the model of a data centre's GPU: T4, V100, A10G, L40S, GH200, MI300X.
_MODEL = re.compile(r"[A-Z]{1,2}\d{1,3}[A-Za-z]?(?=$|[-_])")
#: So many machines in a row with the same numbers are named one by one.
_NAMED = 3


@dataclass(frozen=True)
class Line:
    """Machines with the same numbers: what they are called together, and the row of the first of them."""

    name: str
    row: FleetRow

    @property
    def marked(self) -> str:
        """The name, with the mark of what its numbers rest on."""
        mark = kind_mark(self.row.device, self.row.provenance)
        return f"{self.name} {mark}" if mark else self.name


def lines(rows: Sequence[FleetRow]) -> list[Line]:
    """One line a row; one for all machines in a row whose numbers are the same, where these are many."""
    found: list[Line] = []
    for _, group in groupby(rows, key=lambda row: (row.devices, row.device)):
        alike = list(group)
        if len(alike) > _NAMED:
            found.append(Line(f"{sum(row.count for row in alike):,} like {called(alike[0])}", alike[0]))
        else:
            found += [Line(f"{row.count:,} × {called(row)}" if row.count > 1 else called(row), row) for row in alike]
    return found


def has_trades(fleet: FleetData) -> bool:
    """Whether something besides time is known, so that more than one machine may be the right one."""
    return fleet.objective == "energy" or any(row.dollars is not None for row in fleet.rows)


def cut(fleet: FleetData, found: Sequence[Line]) -> list[Line]:
    """The first lines and the Pareto set; all where that leaves out few."""
    trades = has_trades(fleet)
    shown = [line for number, line in enumerate(found) if number < SHOWN or (trades and line.row.pareto)]
    return shown if len(shown) + SHOWN // 4 < len(found) else list(found)


def called(row: FleetRow) -> str:
    """A machine's name, with its GPU where the name does not tell it; that of a GPU without its maker.

    What cannot be printed is replaced: a line end in a name must not begin a line of a batch script.
    """
    if row.machine == row.gpu:
        return without_maker(row.machine)
    gpu, name = short_gpu(row.gpu), str(printable(row.machine))
    return f"{name} ({gpu})" if gpu and gpu.lower() not in name.lower() else name


def short_gpu(gpu: str) -> str:
    """What people call a GPU: ``T4`` for a Tesla T4, ``RTX 4090`` for an NVIDIA GeForce RTX 4090."""
    return next((found[0] for word in gpu.split() if (found := _MODEL.match(word))), without_maker(gpu))


def many(fleet: FleetData) -> int:
    """Steps that money and energy are told of: all, or a million of a long run, where one costs next to nothing."""
    return 1 if fleet.count is not None else MANY


def of_how_many(fleet: FleetData) -> str:
    """``1,000 steps``, or ``a million steps`` of a long run."""
    return f"a million {fleet.unit}s" if fleet.count is None else format_count(fleet.count, fleet.unit)


#: Stands beside the machines of the Pareto set.
MARK = "*"
#: Characters of a name that is kept on one line at the expense of the verdict.
LONGEST_NAME = 32
_ENERGY = "Energy (~) is an estimate from data sheets and predicted use, not a measurement."


def render_text(fleet: FleetData, *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
    load_rich()
    from rich.text import Text

    every = lines(fleet.rows)
    shown = cut(fleet, every)
    parts: list[Any] = [Text(headline(fleet), style="bold"), *details(fleet), table(fleet, shown)]
    if len(shown) < len(every):
        parts += [f"… and {len(every) - len(shown):,} more (--format json shows all)", ""]
    parts += [*remarks(fleet, shown), *(f"- {note}" for note in fleet.notes)]
    return plain(parts, width=width, color=color)


def headline(fleet: FleetData) -> str:
    """Where it should run, in a sentence."""
    best = fleet.best
    if best is None:
        first = fleet.rows[0]
        if not first.fits:
            return f"it fits nowhere; {first.device} of {called(first)} {needed_memory(first)}"
        return f"no machine reaches the target; closest: {first.device} of {called(first)}, {first.verdict}"
    of = f"a {fleet.unit}" if fleet.count is None else f"for {of_how_many(fleet)}"
    took = f"{format_duration(best.seconds)} {of}"
    money = "" if best.dollars is None else f", {_money(fleet, best)}"
    money += " a million" if money and fleet.count is None else ""
    return f"{best.device} of {called(best)}: {best.verdict}, {took}{money}"


def details(fleet: FleetData) -> list[str]:
    """What bounds a step on the first machine; what the target is compared with, and how many machines reach it."""
    first = fleet.rows[0]
    limit = LIMITS.get(first.bounded_by or "")
    found = [f"A {fleet.unit} there is bounded by {limit}."] if limit and fleet.best is first else []
    if fleet.target is None:
        return found
    reach = sum(row.count for row in fleet.rows if row.reaches and row.fits)
    what = f"one {fleet.unit}" if fleet.count is None else of_how_many(fleet)
    machines = sum(row.count for row in fleet.rows)
    return [*found, f"Target: {format_duration(fleet.target)} for {what}; {reach:,} of {machines:,} machines reach it."]


def table(fleet: FleetData, shown: Sequence[Line]) -> Any:
    """One row a line: the Pareto set is marked in front."""
    from rich.text import Text

    heads, *cells = columns(fleet, shown)
    blank = "  " if has_trades(fleet) else ""
    drawn = new_table("", heads)
    drawn.title = None
    drawn.padding = (0, 1, 0, 0)
    longest = max(len(line.marked) for line in shown)
    for number, (column, head) in enumerate(zip(drawn.columns, heads, strict=True)):
        column.header = Text(head if number else blank + head)  # some have two lines
        column.justify = "left" if head in ("machine", "on", "verdict") else "right"
        column.no_wrap = head != "verdict" and (head != "machine" or longest <= LONGEST_NAME)
    for line, (name, *rest) in zip(shown, cells, strict=True):
        front = f"{MARK} " if blank and line.row.pareto else blank
        drawn.add_row(front + name, *rest, style="bold" if line.row is fleet.best else "")
    return drawn


def columns(fleet: FleetData, shown: Sequence[Line]) -> list[list[str]]:
    """The heads of the columns, then the cells of every line. Times are in all, where the number of steps is known."""
    priced = any(row.dollars is not None for row in fleet.rows)
    power = fleet.objective == "energy"
    per = "" if fleet.count is not None else "\nof 1M"
    found = [["machine", "on", fleet.unit if fleet.count is None else "in all", "90% between",
              *([f"money{per}"] if priced else []), *([f"energy ~{per}"] if power else []), "verdict"]]  # fmt: skip
    for line in shown:
        row = line.row
        cells = [line.marked, row.device, format_duration(row.seconds), format_interval(*row.between, row.seconds)]
        cells += ["-" if row.dollars is None else _money(fleet, row)] if priced else []
        cells += [_energy(fleet, row)] if power else []
        found.append([*cells, row.verdict])
    return found


def remarks(fleet: FleetData, shown: Sequence[Line]) -> list[str]:
    """What the marks, the money and the energy mean."""
    found = []
    if has_trades(fleet):
        known = ["time", *(["money"] if any(row.dollars is not None for row in fleet.rows) else []),
                 *(["energy"] if fleet.objective == "energy" else [])]  # fmt: skip
        better = " and ".join(filter(None, (", ".join(known[:-1]), known[-1])))
        found.append(f"{MARK} no other machine is better in {better} together.")
    found += legend({f"{line.row.device}@{number}": line.row.row for number, line in enumerate(shown)})
    found += [_ENERGY] if fleet.objective == "energy" else []
    return found


def _money(fleet: FleetData, row: FleetRow) -> str:
    return format_dollars((row.dollars or 0.0) * many(fleet))


def _energy(fleet: FleetData, row: FleetRow) -> str:
    return "-" if row.joules is None else format_joules(row.joules * many(fleet))


_MONEY = (
    "The line joins the machines that no other one betters in time and money together. Bars are 90 % intervals of the "
    "time, and with it of the money."
)
_TIME = "Bars are times, lines on them 90 % intervals."


def render_html(fleet: FleetData) -> str:
    """One page without external parts. Raises PlacerError without jinja2 or vl-convert."""
    every = lines(fleet.rows)
    heads, *cells = columns(fleet, every)
    of = f"a {fleet.unit}" if fleet.count is None else of_how_many(fleet)
    priced = any(row.dollars is not None for row in fleet.rows)
    drawn = money_plot(fleet, every) if priced else times_plot(fleet, every)
    title = f"Time and money of {of_how_many(fleet)}" if priced else f"Time of {of}"
    rows = []
    for line, (name, *rest) in zip(every, cells, strict=True):
        front = f"{MARK} " if line.row.pareto and has_trades(fleet) else ""
        rows.append([front + name, *rest])
    strong = [number for number, line in enumerate(every) if line.row is fleet.best]
    return render_page(headline(fleet), details(fleet), workload_line(fleet.workload), [
        Section(title, _MONEY if priced else _TIME, plots=[("", drawn)]),
        Section("Machines", heads=[head.replace("\n", " ") for head in heads], rows=rows, strong=strong, wordy=True),
        Section("Notes", items=[*remarks(fleet, every), *fleet.notes]),
    ])  # fmt: skip


#: What the numbers rest on, and the colour of the style sheet for it.
_COLOURS = {
    "calibrated": "var(--device-2)", "published": "var(--device-0)", "data sheet": "var(--device-1)",
    "estimated": "var(--device-3)",
}  # fmt: skip
#: Names beside the points, besides those of the Pareto set: more would cover each other.
_LABELLED = 12
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"), (1e-3, "milliseconds"))


def money_plot(fleet: FleetData, lines: Sequence[Line]) -> str:
    """Time against money on log scales, as SVG. Machines without a price are left out."""
    priced = [line for line in lines if line.row.dollars is not None]
    unit, scale = _unit([many(fleet) * line.row.seconds for line in priced])
    values: list[dict[str, Any]] = []
    for number, line in enumerate(priced):
        row = line.row
        low, high = (many(fleet) * seconds / scale for seconds in row.between)
        dollars, seconds = many(fleet) * (row.dollars or 0.0), many(fleet) * row.seconds
        values.append({
            "name": line.name, "seconds": seconds / scale, "low": low, "high": high, "dollars": dollars,
            "label": line.name if row.pareto or number < _LABELLED else "", "pareto": row.pareto,
            "numbers": kind(row.device, row.provenance),
            "what": f"{row.device} of {line.name}: {format_duration(seconds)}, {format_dollars(dollars)}",
        })  # fmt: skip
    x = {"field": "seconds", "type": "quantitative", "title": f"time, {unit}", "axis": {"tickCount": 6},
         "scale": _log([value[end] for value in values for end in ("low", "high")])}  # fmt: skip
    y = {"field": "dollars", "type": "quantitative", "title": "money, dollars",
         "axis": {"tickCount": 5, "format": "$~g"}, "scale": _log([value["dollars"] for value in values])}  # fmt: skip
    front = [{"filter": "datum.pareto"}]
    return svg({
        "data": {"values": values},
        "height": 380,
        "layer": [
            {"transform": front, "mark": {"type": "line", "color": "var(--quiet)", "strokeDash": [5, 4]},
             "encoding": {"x": x, "y": y, "order": {"field": "seconds"}}},
            {"mark": {"type": "rule", "opacity": 0.45}, "encoding": {
                "x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": _colour(values)}},
            {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
             "encoding": {"x": x, "y": y, "color": _colour(values), "description": {"field": "what"}}},
            {"mark": {"type": "text", "align": "left", "dx": 7, "dy": -8, "fontSize": 11, "fill": "currentColor"},
             "encoding": {"x": x, "y": y, "text": {"field": "label"}}},
        ],
    }, "Time against money by machine")  # fmt: skip


def times_plot(fleet: FleetData, lines: Sequence[Line]) -> str:
    """A bar a machine on a log scale, as SVG; of a long list, those that the text shows."""
    shown = cut(fleet, lines)
    unit, scale = _unit([line.row.seconds for line in shown])
    values = [
        {"name": line.name, "seconds": line.row.seconds / scale, "low": line.row.between[0] / scale,
         "high": line.row.between[1] / scale, "numbers": kind(line.row.device, line.row.provenance),
         "what": f"{line.row.device} of {line.name}: {format_duration(line.row.seconds)}"}
        for line in shown
    ]  # fmt: skip
    y = {"field": "name", "type": "nominal", "sort": None, "title": None,
         "axis": {"labelLimit": 240, "minExtent": min(7 * max(len(line.name) for line in shown), 240)}}  # fmt: skip
    x = {"field": "seconds", "type": "quantitative", "title": f"time, {unit}", "axis": {"tickCount": 8}}
    return svg({
        "data": {"values": values},
        "height": {"step": 24},
        "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "bar", "height": 14}, "encoding": {"x": x, "color": _colour(values),
                                                                 "description": {"field": "what"}}},
            {"mark": {"type": "rule", "color": "currentColor"},
             "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}}},
        ],
    }, "Time by machine")  # fmt: skip


def _colour(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = [name for name in _COLOURS if any(value["numbers"] == name for value in values)]
    return {"field": "numbers", "type": "nominal", "sort": None,
            "scale": {"domain": found, "range": [_COLOURS[name] for name in found]}}  # fmt: skip


def _log(values: Sequence[float]) -> dict[str, Any]:
    """A log scale with some room at both ends, where names stand."""
    return {"type": "log", "nice": False, "domain": [min(values) / 1.15, max(values) * 1.3]}


def _unit(seconds: Sequence[float]) -> tuple[str, float]:
    """The unit that an axis of these times is read in, and its length in seconds."""
    middle = sorted(seconds)[len(seconds) // 2]
    return next(((unit, scale) for scale, unit in _UNITS if middle >= scale), ("microseconds", 1e-6))
