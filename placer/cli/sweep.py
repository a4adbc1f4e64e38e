"""``placer explain --sweep``: prices the workload over batch sizes, or its choice over numbers of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import click

from placer.cli.shapes import Range
from placer.decision import Objective, batch_size, decide, with_batch
from placer.errors import TraceError
from placer.explanation import DeviceRow, Explanation, Sweep
from placer.workload import Job, Workload


@dataclass(frozen=True, kw_only=True)
class _Candidate(DeviceRow):
    """A row with the device and threads it is of, as ``decide`` asks for it."""

    device: str
    threads: int


def of_workload(wanted: Range, workload: Workload, explain: Callable[[Workload], Explanation]) -> Sweep:
    """The workload at every batch size or number of steps; ``explain`` prices one."""
    return run(wanted, lambda size: explain(workload if size is None else with_batch(workload, size)))


def of_job(wanted: Range, job: Job, explain: Callable[[Job], Explanation]) -> Sweep:
    """The job at every number of repeats, or with a part of every batch size or count; ``explain`` prices one.

    Raises ValueError for a part that it does not have, or that has no batch size.
    """
    if wanted.over == "repeats":
        return replace(over_steps(explain(job), wanted.values), over="repeats")
    if not wanted.part:
        names = ", ".join(part.name for part in job.parts)
        raise ValueError(f"--sweep of a job is over repeats, or batch or count of a part (PART.{wanted.over}): {names}")
    part = job.part(wanted.part)
    if wanted.over == "batch" and batch_size(part.workload) is None:
        raise ValueError(f"--sweep varies the first size of every input, and those of {part.name} have none in common")

    def at(value: int | None) -> Explanation:
        if value is None:
            return explain(job)
        if wanted.over == "count":
            return explain(job.with_part(part.changed(count=value)))
        return explain(job.with_part(part.changed(workload=with_batch(part.workload, value))))

    return replace(run(wanted, at), part=part.name)


def around(workload: Workload, explain: Callable[[Workload], Explanation]) -> Sweep | None:
    """A few batch sizes around the workload's own, for the report's plot; None where it has none, or they fail."""
    size = batch_size(workload)
    if size is None:
        return None
    sizes = sorted({max(size // 16, 1), max(size // 4, 1), size, size * 4, size * 16})
    try:
        return of_workload(Range("batch", tuple(sizes)), workload, explain)
    except TraceError:
        return None


def run(wanted: Range, explain: Callable[[int | None], Explanation]) -> Sweep:
    """The sweep over ``wanted``. ``explain`` gives the explanation at a batch size; None: as the workload is.

    A size that cannot be traced is skipped, unless all are (TraceError).
    """
    if wanted.over == "steps":
        return over_steps(explain(None), wanted.values)
    rows: dict[int, Explanation] = {}
    failed: dict[int, str] = {}
    error: TraceError | None = None
    for size in wanted.values:
        click.echo(f"placer: {wanted.over} {size:,}", err=True)
        try:
            rows[size] = explain(size)
        except TraceError as caught:
            error, failed[size] = caught, str(caught)
    if error is not None and not rows:
        raise error
    return Sweep(wanted.over, rows, failed)


def over_steps(one: Explanation, counts: tuple[int, ...]) -> Sweep:
    """The same step, decided on for every number of steps. Nothing is priced again."""
    rows = {}
    known = {name: (row.dollars_per_hour, row.watts) for name, row in one.devices.items()}
    objective = Objective(
        one.decision.objective, price=tuple((name, price) for name, (price, _) in known.items() if price is not None),
        watts=tuple((name, watts) for name, (_, watts) in known.items() if watts is not None),
    )  # fmt: skip
    for steps in counts:
        devices = {
            name: replace(row, total_seconds=row.one_time_seconds + steps * row.step_seconds)
            for name, row in one.devices.items()
        }
        candidates = {
            name: _Candidate(**vars(row), device=name, threads=one.decision.threads) for name, row in devices.items()
        }
        decision = decide(candidates, steps, objective)
        rows[steps] = replace(one, decision=decision, devices=devices, workload={**one.workload, "steps": steps})
    return Sweep("steps", rows)
