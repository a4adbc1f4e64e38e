"""The parts of a job: a row each, with its share of the job on every device, and how they would run apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placer.explanation.data import ExplanationData
from placer.explanation.provenance import headings
from placer.explanation.rows import PartRow
from placer.explanation.tables import bar_width, columns_width, drawn_bar, new_table, with_bars
from placer.units import format_bytes, format_ratio, format_seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def table(explanation: ExplanationData, width: int) -> Table | None:
    """One row per part: its steps in one job, their seconds on each device with a bar, and where it is fastest."""
    if not explanation.parts:
        return None
    names = list(explanation.devices)
    called = list(headings(explanation.devices).values())
    labels = max(len(part.name) for part in explanation.parts)
    taken = labels + columns_width([*called, "steps"]) + max(len(fastest(part)) for part in explanation.parts) + 2
    room = bar_width(width, taken, len(names))
    drawn = new_table("Parts of the job", ["part", "steps", *with_bars(called, called, room), "fastest on"])
    for part in explanation.parts:
        cells: list[str | Text] = []
        for number, name in enumerate(names):
            cells.append(format_seconds(part.seconds(name)))
            if room:
                cells.append(drawn_bar(part.seconds(name), explanation.devices[name].step_seconds, room, number))
        drawn.add_row(part.name, f"{part.count:,g}", *cells, fastest(part))
    return drawn


def share(explanation: ExplanationData, part: PartRow, device: str) -> float:
    """The part's share of the job on a device."""
    whole = explanation.devices[device].step_seconds
    return part.seconds(device) / whole if whole else 0.0


def fastest(part: PartRow) -> str:
    """The device with the shortest step, and what bounds it there."""
    name = min(part.devices, key=lambda device: part.devices[device].step_seconds)
    bound = part.devices[name].bounded_by
    return f"{name} ({bound})" if bound else name


def apart_line(explanation: ExplanationData) -> str | None:
    """How the parts would run on several devices, and what that takes; None where it would not pay."""
    apart = explanation.apart
    if apart is None:
        return None if len(explanation.devices) < 2 or len(explanation.parts) < 2 else (
            "No part would be better off on a device of its own."
        )
    shares = ", ".join(f"{name} on {device}" for name, device in apart.devices.items())
    best = min(row.step_seconds for row in explanation.devices.values())
    line = f"Apart ({shares}), the job takes {format_seconds(apart.step_seconds)}"
    if apart.step_seconds:
        line += f", {format_ratio(best / apart.step_seconds)} as fast"
    if apart.exchange_bytes:
        size, seconds = format_bytes(apart.exchange_bytes), format_seconds(apart.exchange_seconds)
        line += f"; {seconds} of it to copy {size} of weights between them"
    return f"{line}."
