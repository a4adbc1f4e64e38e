"""What each device takes of time, money and energy, and what it gives for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.decision import TIME, Point, trade
from placer.explanation.data import ExplanationData
from placer.explanation.provenance import headings
from placer.explanation.rows import DeviceRow
from placer.explanation.tables import new_table
from placer.units import format_dollars, format_duration, format_joules

if TYPE_CHECKING:
    from rich.table import Table

#: Steps that the table is about where nobody said how many there will be: one costs next to nothing.
_MANY = 1_000_000


def told(explanation: ExplanationData) -> bool:
    """Whether money or energy was asked about."""
    priced = any(row.dollars_per_hour is not None for row in explanation.devices.values())
    return len(explanation.devices) > 1 and (priced or explanation.decision.objective != TIME.name)


def table(explanation: ExplanationData) -> Table:
    """One row per device, with what it gives for what it costs beside the choice."""
    called = headings(explanation.devices)
    drawn = new_table(f"What {_run(explanation)} cost", ["", "time", "money", "energy ~", ""])
    for name, row in explanation.devices.items():
        seconds = _seconds(row)
        cells = (
            format_duration(seconds),
            "-" if row.dollars_per_hour is None else format_dollars(row.dollars_per_hour * seconds / 3600.0),
            "-" if row.watts is None else format_joules(row.watts * seconds),
        )
        style = "bold" if name == explanation.decision.device else ""
        drawn.add_row(called[name], *cells, said(explanation, name), style=style)
    return drawn


def said(explanation: ExplanationData, name: str) -> str:
    """What a device gives for what it costs beside the choice: ``17% faster for 5.0× the money``."""
    chosen = explanation.decision.device
    if name == chosen or not explanation.devices[name].fits:
        return "the choice" if name == chosen else "does not fit"
    found = {device: _point(device, row, explanation.decision.objective) for device, row in explanation.devices.items()}
    return trade(found[name], found[chosen]) or "the same"


def _point(name: str, row: DeviceRow, objective: str) -> Point:
    seconds = _seconds(row)
    return Point(
        name, seconds, None if row.dollars_per_hour is None else row.dollars_per_hour * seconds / 3600.0,
        None if row.watts is None or objective != "energy" else row.watts * seconds,
    )  # fmt: skip


def _seconds(row: DeviceRow) -> float:
    return _MANY * row.step_seconds if row.total_seconds is None else row.total_seconds


def _run(explanation: ExplanationData) -> str:
    steps, unit = explanation.workload.get("steps"), explanation.unit
    if steps is None:
        return f"a million {unit}s"
    return f"{steps:,} {unit}{'s' if steps > 1 else ''}"
