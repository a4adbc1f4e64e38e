"""Rows of a fleet -> the best first, each with what it gives beside the best."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from placer.decision import ABOUT_THE_SAME, SAME, Point, pareto, trade
from placer.fleets.data import FleetRow
from placer.units import format_bytes, format_ratio

#: What bounds a step, in a word or two.
LIMITS = {
    "launches": "the host", "transfer": "copies", "arithmetic": "arithmetic", "memory": "memory",
    "waits": "waits", "loader": "the loader",
}  # fmt: skip
_Name = TypeVar("_Name", bound=Hashable)
_BEST = {"time": "fastest", "cost": "cheapest", "energy": "least energy"}


def ranked(rows: Mapping[_Name, FleetRow], objective: str, target: float | None) -> dict[_Name, FleetRow]:
    """The rows in order: where it fits, where it reaches the target (cheapest first), and by what is made small."""
    rows = {n: replace(row, reaches=None if target is None else row.seconds <= target) for n, row in rows.items()}
    order = sorted(rows, key=lambda name: _key(rows[name], objective, target))
    if objective == "time" and target is None:
        first = _cheapest_of_the_fastest(rows, order)
        order = [first, *(name for name in order if name != first)]
    best = rows[order[0]]
    points = {name: _point(rows[name], objective) for name in order if rows[name].fits}
    front = pareto(list(points.values()))
    return {
        name: replace(
            rows[name], verdict=_verdict(rows[name], best, objective, target), pareto=points.get(name) in front
        )
        for name in order
    }


def _cheapest_of_the_fastest(rows: Mapping[_Name, FleetRow], order: Sequence[_Name]) -> _Name:
    """The first of the order, or a cheaper one whose time is the same, as far as predictions tell."""
    first = rows[order[0]]
    known = [(name, rows[name].dollars) for name in order if rows[name].fits == first.fits
             and rows[name].seconds <= (1.0 + SAME) * first.seconds]  # fmt: skip
    priced = [(dollars, number, name) for number, (name, dollars) in enumerate(known) if dollars is not None]
    return min(priced)[2] if priced and first.dollars is not None else order[0]


def _key(row: FleetRow, objective: str, target: float | None) -> tuple[bool, bool, float, float]:
    aim = objective
    if target is not None and (objective == "time" or not row.reaches):
        aim = "cost" if row.reaches else "time"  # the cheapest that reaches it, else what comes closest
    amount = {"time": row.seconds, "cost": row.dollars, "energy": row.joules}[aim]
    return not row.fits, target is not None and not row.reaches, math.inf if amount is None else amount, row.seconds


def _point(row: FleetRow, objective: str) -> Point:
    return Point(row.machine, row.seconds, row.dollars, row.joules if objective == "energy" else None)


def _verdict(row: FleetRow, best: FleetRow, objective: str, target: float | None) -> str:
    if not row.fits:
        return f"does not fit: {needed_memory(row)}"
    if row.reaches is False and target is not None:
        limit = LIMITS.get(row.bounded_by or "", "")
        by = f", bounded by {limit}" if limit else ""
        return f"{format_ratio(row.seconds / target)} the target{by}"
    if row is best:
        return _of_the_best(row, objective, target)
    return trade(_point(row, objective), _point(best, objective)) or ABOUT_THE_SAME


def _of_the_best(row: FleetRow, objective: str, target: float | None) -> str:
    aim = "cost" if target is not None and objective == "time" else objective  # as in ``_key``
    known = {"time": True, "cost": row.dollars is not None, "energy": row.joules is not None}[aim]
    if target is not None:
        return f"{_BEST[aim]} that reaches the target" if known else "reaches the target"
    return _BEST[aim] if known else f"no {'price' if aim == 'cost' else 'power'} is known"


def needed_memory(row: FleetRow) -> str:
    """What it needs, and of how much, where that is known."""
    needed, available = row.row.peak_memory_bytes, row.row.available_memory_bytes
    return f"needs {format_bytes(needed)}" + (f" of {format_bytes(available)}" if available is not None else "")
