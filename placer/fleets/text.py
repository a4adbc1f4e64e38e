"""A Fleet as text: the answer in a line, then a row for every machine."""

from __future__ import annotations

from typing import Any

from placer.explanation import legend, load_rich, marked, new_table, plain
from placer.fleets.data import FleetData, FleetRow
from placer.units import format_dollars, format_duration, format_joules, format_seconds

#: Stands beside the machines of the Pareto set.
MARK = "*"
#: Steps that money and energy are told of where nobody said how many there will be: one costs next to nothing.
MANY = 1_000_000


def render(fleet: FleetData, *, width: int = 100, color: bool = False) -> str:
    """Text at most ``width`` columns wide; with ANSI codes only where ``color`` asks for them."""
    load_rich()
    from rich.text import Text

    parts: list[Any] = [Text(headline(fleet), style="bold"), "", table(fleet), ""]
    if any(row.pareto for row in fleet.rows[1:]):
        priced = "money" if any(row.dollars is not None for row in fleet.rows) else ""
        also = "energy" if fleet.objective == "energy" else ""
        beaten = " and ".join(filter(None, ("time", priced, also)))
        if beaten != "time":
            parts.append(f"{MARK} no other machine is better in {beaten} together.")
    parts += legend({f"{row.machine}{number}": row.row for number, row in enumerate(fleet.rows)})
    parts += [f"- {note}" for note in fleet.notes]
    return plain(parts, width=width, color=color)


def headline(fleet: FleetData) -> str:
    """Where it should run, in a sentence."""
    best = fleet.best
    if best is None:
        first = fleet.rows[0]
        return f"none: {first.machine} comes closest ({first.verdict})"
    took = f"{best.device} of {best.machine}, {format_duration(best.seconds)} {_of(fleet)}"
    money = "" if best.dollars is None else f", {_money(fleet, best)}"
    return f"{took}{money}: {best.verdict}"


def table(fleet: FleetData) -> Any:
    """One row per kind of machine, the best first."""
    several = any(row.count > 1 for row in fleet.rows)
    priced = any(row.dollars is not None for row in fleet.rows)
    whole = fleet.count is not None
    columns = ["machine", *(["count"] if several else []), "device", fleet.unit, "90% from", "to",
               *(["in all"] if whole else []), *([_of(fleet, "money")] if priced else []),
               *([_of(fleet, "energy ~")] if fleet.objective == "energy" else []), "verdict"]  # fmt: skip
    drawn = new_table("", columns)
    for name in ("device", "verdict"):
        drawn.columns[columns.index(name)].justify = "left"
    for row in fleet.rows:
        cells = [marked(row.machine, row.provenance) + (f" {MARK}" if row.pareto and priced else "")]
        cells += [f"{row.count:,}"] if several else []
        cells += [row.device, *map(format_seconds, (row.step_seconds, row.low, row.high))]
        cells += [format_duration(row.seconds)] if whole else []
        cells += ["-" if row.dollars is None else _money(fleet, row)] if priced else []
        if fleet.objective == "energy":
            cells.append("-" if row.joules is None else format_joules(row.joules * _many(fleet)))
        drawn.add_row(*cells, row.verdict, style="bold" if row is fleet.best else "")
    return drawn


def _money(fleet: FleetData, row: FleetRow) -> str:
    return format_dollars((row.dollars or 0.0) * _many(fleet))


def _many(fleet: FleetData) -> int:
    return 1 if fleet.count is not None else MANY


def _of(fleet: FleetData, what: str = "") -> str:
    """``for 1,000 steps``; of a long run, ``a step``, or an amount ``of a million``."""
    if not what:
        several = "s" if (fleet.count or 1) > 1 else ""
        return f"a {fleet.unit}" if fleet.count is None else f"for {fleet.count:,} {fleet.unit}{several}"
    return what if fleet.count is not None else f"{what} of a million"
