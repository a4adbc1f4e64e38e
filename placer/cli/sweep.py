"""``placer explain --sweep``: one row per batch size, and where the choice turns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click
from torch import nn

from placer.cli.shapes import Shape, example
from placer.errors import TraceError
from placer.explanation import Explanation
from placer.units import format_seconds


@dataclass(frozen=True)
class Sweep:
    """Explanations by batch size; sizes that could not be traced have a reason instead."""

    rows: dict[int, Explanation]
    failed: dict[int, str]

    def crossovers(self) -> list[tuple[int, str]]:
        """(batch size, device) where the choice becomes another than at the size before; the first size included."""
        found: list[tuple[int, str]] = []
        for size, row in self.rows.items():
            if not found or found[-1][1] != row.decision.device:
                found.append((size, row.decision.device))
        return found

    def to_json(self) -> str:
        """Indented JSON, ending in a newline."""
        values = {
            "schema": 1,
            "sweep": "batch",
            "rows": [
                {
                    "batch": size,
                    "choice": row.decision.device,
                    "confidence": row.decision.confidence,
                    "devices": {name: device.to_dict() for name, device in row.devices.items()},
                }
                for size, row in self.rows.items()
            ],
            "failed": {str(size): reason for size, reason in self.failed.items()},
            "crossovers": [{"batch": size, "choice": device} for size, device in self.crossovers()],
        }
        return json.dumps(values, indent=2, allow_nan=False) + "\n"

    def to_text(self, *, width: int = 100, color: bool = False) -> str:
        """A table, and a sentence on where the choice turns."""
        from placer.explanation.text import new_table, plain

        devices = list(dict.fromkeys(name for row in self.rows.values() for name in row.devices))
        # How sure the choice is, is a question only where there was one.
        compared = any(row.decision.speedup is not None for row in self.rows.values())
        sure = ["sure"] if compared else []
        table = new_table("Seconds of a step by batch size", ["batch", *devices, "choice", *sure])
        for size, row in self.rows.items():
            times = (format_seconds(row.devices[n].step_seconds) if n in row.devices else "-" for n in devices)
            cells = [_sureness(row)] if compared else []
            table.add_row(f"{size:,}", *times, row.decision.device, *cells)
        lines = [self._turns(), *(f"batch {size:,}: {reason}" for size, reason in self.failed.items())]
        return plain([table, *lines], width=width, color=color)

    def _turns(self) -> str:
        (_, first), *later = self.crossovers()
        if not later:
            return f"{first} at every batch size."
        return f"{first} first; " + "; ".join(f"{device} from batch {size:,} on" for size, device in later) + "."


def _sureness(row: Explanation) -> str:
    from placer.explanation.text import sureness

    decision = row.decision
    return "-" if decision.confidence is None or decision.speedup is None else sureness(decision.confidence)


def run(model: nn.Module, shapes: list[Shape], sizes: tuple[int, ...], arguments: dict[str, Any]) -> Sweep:
    """Explain the model at every size. A size that cannot be traced is skipped, unless all of them are (TraceError)."""
    from placer.api import explain

    rows: dict[int, Explanation] = {}
    failed: dict[int, str] = {}
    error: TraceError | None = None
    for size in sizes:
        click.echo(f"placer: batch {size:,}", err=True)
        try:
            rows[size] = explain(model, example=example(shapes, size), **arguments)
        except TraceError as caught:
            error, failed[size] = caught, str(caught)
    if error is not None and not rows:
        raise error
    return Sweep(rows, failed)
