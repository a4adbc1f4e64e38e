"""``placer explain --sweep``: the workload priced over batch sizes, or its choice over numbers of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placer.cli.options import Range
from placer.cli.output import say
from placer.decision import Objective, batch_size, decide, with_batch
from placer.errors import TraceError
from placer.explanation import Explanation, Sweep
from placer.workload import Job, Workload


def sweep(wanted: Range, what: Workload | Job, explain: Callable[[Workload | Job], Explanation]) -> Sweep:
    """The step or the job at every value of ``wanted``; ``explain`` prices one."""
    if wanted.over == "steps":
        return over_steps(explain(what), wanted.values)
    return run(wanted, lambda value: explain(changed(what, wanted, value)))


def run(wanted: Range, explain: Callable[[int], Explanation]) -> Sweep:
    """The sweep over ``wanted``; ``explain`` gives the explanation at a value.

    One that cannot be traced is skipped, unless all are (TraceError).
    """
    rows: dict[int, Explanation] = {}
    failed: dict[int, str] = {}
    error: TraceError | None = None
    for value in wanted.values:
        say(f"{wanted.over} {value:,}")
        try:
            rows[value] = explain(value)
        except TraceError as caught:
            error, failed[value] = caught, str(caught)
    if error is not None and not rows:
        raise error
    return Sweep(wanted.over, rows, failed, wanted.part)


def changed(what: Workload | Job, wanted: Range, value: int) -> Workload | Job:
    """The step with another batch; the job with other repeats, or a part of it with another batch or count."""
    if isinstance(what, Workload):
        return with_batch(what, value)
    if wanted.over == "repeats":
        return Job(what.parts, repeats=value, apart=what.apart)
    part = what.part(wanted.part)
    if wanted.over == "count":
        return what.with_part(part.changed(count=value))
    return what.with_part(part.changed(workload=with_batch(part.workload, value)))


def check_sweep(wanted: Range, what: Workload | Job) -> None:
    """Raise ValueError for what does not vary, or a part that the job does not have."""
    if isinstance(what, Workload):
        if wanted.part or wanted.over not in ("batch", "steps"):
            raise ValueError("--sweep of a model is over batch or steps; repeats and parts are those of a placer.Job")
        return
    if wanted.over == "repeats":
        return
    if not wanted.part:
        names = ", ".join(part.name for part in what.parts)
        raise ValueError(f"--sweep of a job is over repeats, or batch or count of a part (PART.{wanted.over}): {names}")
    part = what.part(wanted.part)
    if wanted.over == "batch" and batch_size(part.workload) is None:
        raise ValueError(f"--sweep varies the first size of every input, and those of {part.name} have none in common")


def around(workload: Workload, explain: Callable[[Workload | Job], Explanation]) -> Sweep | None:
    """A few batch sizes around the workload's own, for the report's plot; None where it has none, or they fail."""
    size = batch_size(workload)
    if size is None:
        return None
    sizes = sorted({max(size // 16, 1), max(size // 4, 1), size, size * 4, size * 16})
    try:
        return sweep(Range("batch", tuple(sizes)), workload, explain)
    except TraceError:
        return None


def over_steps(one: Explanation, counts: tuple[int, ...]) -> Sweep:
    """The same step, decided on for every number of steps. Nothing is priced again."""
    rows = {}
    prices = {name: row.dollars_per_hour for name, row in one.devices.items() if row.dollars_per_hour is not None}
    powers = {name: row.watts for name, row in one.devices.items() if row.watts is not None}
    objective = Objective(one.decision.objective, tuple(prices.items()), tuple(powers.items()))
    for steps in counts:
        devices = {
            name: replace(row, total_seconds=row.one_time_seconds + steps * row.step_seconds)
            for name, row in one.devices.items()
        }
        decision = decide(devices, steps, objective)
        rows[steps] = replace(one, decision=decision, devices=devices, workload={**one.workload, "steps": steps})
    return Sweep("steps", rows)
