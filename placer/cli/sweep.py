"""``placer explain --sweep``: prices the workload over batch sizes, or its choice over numbers of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from placer.cli.output import say
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
    if wanted.over == "steps":
        return over_steps(explain(workload), wanted.values)
    return run(wanted, lambda size: explain(with_batch(workload, size)))


def of_job(wanted: Range, job: Job, explain: Callable[[Job], Explanation]) -> Sweep:
    """The job at every number of repeats, or with a part of every batch size or count; ``explain`` prices one."""

    def at(value: int) -> Explanation:
        if wanted.over == "repeats":
            return explain(Job(job.parts, repeats=value, apart=job.apart))
        part = job.part(wanted.part)
        if wanted.over == "count":
            return explain(job.with_part(part.changed(count=value)))
        return explain(job.with_part(part.changed(workload=with_batch(part.workload, value))))

    return run(wanted, at)


def check_sweep(wanted: Range, job: Job) -> None:
    """Raise ValueError for a part that the job does not have, or that has no batch size."""
    if wanted.over == "repeats":
        return
    if not wanted.part:
        names = ", ".join(part.name for part in job.parts)
        raise ValueError(f"--sweep of a job is over repeats, or batch or count of a part (PART.{wanted.over}): {names}")
    part = job.part(wanted.part)
    if wanted.over == "batch" and batch_size(part.workload) is None:
        raise ValueError(f"--sweep varies the first size of every input, and those of {part.name} have none in common")


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


def run(wanted: Range, explain: Callable[[int], Explanation]) -> Sweep:
    """The sweep over ``wanted``; ``explain`` gives the explanation at a value.

    One that cannot be traced is skipped, unless all are (TraceError).
    """
    rows: dict[int, Explanation] = {}
    failed: dict[int, str] = {}
    error: TraceError | None = None
    for size in wanted.values:
        say(f"{wanted.over} {size:,}")
        try:
            rows[size] = explain(size)
        except TraceError as caught:
            error, failed[size] = caught, str(caught)
    if error is not None and not rows:
        raise error
    return Sweep(wanted.over, rows, failed, wanted.part)


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
