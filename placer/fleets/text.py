"""A fleet as text: the answer in a line, then a row for every machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from placer.explanation import legend, load_rich, new_table, plain
from placer.fleets.data import FleetData, FleetRow
from placer.fleets.lines import Line, called, cut, has_trades, lines, many, of_how_many
from placer.fleets.ranking import LIMITS, needed_memory
from placer.units import format_dollars, format_duration, format_interval, format_joules

#: Stands beside the machines of the Pareto set.
MARK = "*"
#: Characters of a name that is kept on one line at the expense of the verdict.
LONGEST_NAME = 32
_ENERGY = "Energy (~) is an estimate from data sheets and predicted use, not a measurement."


def render(fleet: FleetData, *, width: int = 100, color: bool = False) -> str:
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
