"""``placer explain --sweep``: prices the workload over batch sizes, or its choice over numbers of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import click

from placer.cli.shapes import Range
from placer.decision import decide
from placer.errors import TraceError
from placer.explanation import DeviceRow, Explanation
from placer.explanation.sweep import Sweep


@dataclass(frozen=True)
class _Candidate(DeviceRow):
    """A row with the name it goes by, as a decision asks for it."""

    device: str
    threads: int


def run(wanted: Range, explain: Callable[[int | None], Explanation]) -> Sweep:
    """``explain`` gives the explanation at a batch size, None as the workload is.

    A size that cannot be traced is skipped, unless all are (TraceError).
    """
    if wanted.over == "steps":
        return over_steps(explain(None), wanted.values)
    rows: dict[int, Explanation] = {}
    failed: dict[int, str] = {}
    error: TraceError | None = None
    for size in wanted.values:
        click.echo(f"placer: batch {size:,}", err=True)
        try:
            rows[size] = explain(size)
        except TraceError as caught:
            error, failed[size] = caught, str(caught)
    if error is not None and not rows:
        raise error
    return Sweep("batch", rows, failed)


def over_steps(one: Explanation, counts: tuple[int, ...]) -> Sweep:
    """The same step, decided on for every number of steps: nothing has to be priced anew."""
    rows = {}
    for steps in counts:
        devices = {
            name: replace(row, total_seconds=row.one_time_seconds + steps * row.step_seconds)
            for name, row in one.devices.items()
        }
        candidates = {
            name: _Candidate(**vars(row), device=name, threads=one.decision.threads) for name, row in devices.items()
        }
        decision = decide(candidates, steps)
        rows[steps] = replace(one, decision=decision, devices=devices, workload={**one.workload, "steps": steps})
    return Sweep("steps", rows)
