"""What each device takes of time, money and energy, and what it gives for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.decision import MANY, TIME, Point, trade
from placer.explanation.data import ExplanationData
from placer.explanation.provenance import headings
from placer.explanation.tables import new_table
from placer.units import format_count, format_dollars, format_duration, format_joules

if TYPE_CHECKING:
    from rich.table import Table

#: Columns of the table.
HEADS = ("", "time", "money", "energy ~", "")
#: What the mark beside energy means.
ENERGY = "Energy (~) is an estimate from data sheets and predicted use, unless you gave the watts."


def told(explanation: ExplanationData) -> bool:
    """Whether money or energy was asked about."""
    priced = any(row.dollars_per_hour is not None for row in explanation.devices.values())
    return len(explanation.devices) > 1 and (priced or explanation.decision.objective != TIME.name)


def table(explanation: ExplanationData) -> Table:
    """One row per device, with what it gives for what it costs beside the choice."""
    drawn = new_table(title(explanation), HEADS)
    for name, row in zip(explanation.devices, cells(explanation), strict=True):
        drawn.add_row(*row, style="bold" if name == explanation.decision.device else "")
    return drawn


def title(explanation: ExplanationData) -> str:
    """What the table is about."""
    return f"What {_run(explanation)} cost"


def cells(explanation: ExplanationData) -> list[list[str]]:
    """The cells below ``HEADS``, by device."""
    called = headings(explanation.devices)
    found = []
    for name, row in explanation.devices.items():
        many = 1 if row.total_seconds is not None else MANY
        money = "-" if row.dollars is None else format_dollars(many * row.dollars)
        energy = "-" if row.joules is None else format_joules(many * row.joules)
        found.append([called[name], format_duration(many * row.seconds), money, energy, said(explanation, name)])
    return found


def said(explanation: ExplanationData, name: str) -> str:
    """What a device gives for what it costs beside the choice: ``17% faster for 5.0× the money``."""
    chosen = explanation.decision.device
    if name == chosen or not explanation.devices[name].fits:
        return "the choice" if name == chosen else "does not fit"
    power = explanation.decision.objective == "energy"
    other, best = (
        Point(device, row.seconds, row.dollars, row.joules if power else None)
        for device, row in ((device, explanation.devices[device]) for device in (name, chosen))
    )
    return trade(other, best) or "the same"


def _run(explanation: ExplanationData) -> str:
    steps = explanation.workload.get("steps")
    return f"a million {explanation.unit}s" if steps is None else format_count(steps, explanation.unit)
