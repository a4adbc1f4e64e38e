"""``placer explain --sweep``: the answers over batch sizes, or the choice over numbers of steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from placer.cli.output import say
from placer.decision import Question, Table, answer, batch_size, only_placer_errors, with_batch
from placer.errors import TraceError
from placer.explanation import Sweep
from placer.workload import Job, Workload


@dataclass(frozen=True)
class Range:
    """What a sweep varies (batch or steps; of a job repeats, or batch or count of a ``part``), and its values."""

    over: str
    values: tuple[int, ...]
    part: str = ""


def parse_sweep(text: str) -> Range:
    """``"batch=1:4096"``, ``"steps=1:4096"`` -> the powers of two between, both ends included; see ``Range``."""
    match = re.fullmatch(r"(?:(batch|steps|repeats)|(.+)\.(batch|count))=(\d{1,9}):(\d{1,9})", text.strip(), re.ASCII)
    if match is None:
        raise ValueError(
            f"--sweep {text!r} is not a range of batch sizes like batch=1:4096, or of steps=1:4096; "
            "of a job: repeats=1:4096, or PART.batch=1:4096, or PART.count=1:4096"
        )
    low, high = int(match[4]), int(match[5])
    if not 1 <= low <= high:
        raise ValueError(f"--sweep {text!r}: the range must start at 1 or more and not end below its start")
    powers = [2**n for n in range(low.bit_length(), high.bit_length())]
    values = tuple(sorted({low, high, *(n for n in powers if low <= n <= high)}))
    return Range(match[1] or match[3], values, match[2] or "")


def run_sweep(wanted: Range, work: Workload | Job, question: Question) -> Sweep:
    """The answers to the ``question`` of the step or the job at every value of ``wanted``.

    One that cannot be traced is skipped, unless all are (TraceError).
    """
    question = question.all_alike()
    if wanted.over == "steps":  # nothing is priced again
        table = _answer(question)
        return Sweep("steps", {steps: table.repeated(steps) for steps in wanted.values})
    rows: dict[int, Table] = {}
    failed: dict[int, str] = {}
    error: TraceError | None = None
    for value in wanted.values:
        say(f"{wanted.over} {value:,}")
        try:
            rows[value] = _answer(replace(question, work=changed(work, wanted, value)))
        except TraceError as caught:
            error, failed[value] = caught, str(caught)
    if error is not None and not rows:
        raise error
    return Sweep(wanted.over, rows, failed, wanted.part)


def _answer(question: Question) -> Table:
    """The answer, which a decision can be made by: an objective may lack a price."""
    with only_placer_errors():
        table = answer(question)
        table.decide()
    return table


def changed(work: Workload | Job, wanted: Range, value: int) -> Workload | Job:
    """The step with another batch; the job with other repeats, or a part of it with another batch or count."""
    if isinstance(work, Workload):
        return with_batch(work, value)
    if wanted.over == "repeats":
        return Job(work.parts, repeats=value)
    part = work.part(wanted.part)
    if wanted.over == "count":
        return work.with_part(part.changed(count=value))
    return work.with_part(part.changed(workload=with_batch(part.workload, value)))


def check_sweep(wanted: Range, work: Workload | Job) -> None:
    """Raise ValueError for what does not vary, or a part that the job does not have."""
    if isinstance(work, Workload):
        if wanted.part or wanted.over not in ("batch", "steps"):
            raise ValueError("--sweep of a model is over batch or steps; repeats and parts are those of a placer.Job")
        if wanted.over == "batch":
            _check_common_size(work, "the model")
        return
    if wanted.over == "repeats":
        return
    if not wanted.part:
        names = ", ".join(part.name for part in work.parts)
        raise ValueError(f"--sweep of a job is over repeats, or batch or count of a part (PART.{wanted.over}): {names}")
    part = work.part(wanted.part)
    if wanted.over == "batch":
        _check_common_size(part.workload, part.name)


def _check_common_size(workload: Workload, name: str) -> None:
    if batch_size(workload) is None:
        raise ValueError(
            f"--sweep varies the first size of every input, and those of {name} have none in common: leave --sweep "
            "out, and ask once for each batch"
        )


def around(workload: Workload, question: Question) -> Sweep | None:
    """A few batch sizes around the workload's own, for the report's plot; None where it has none, or they fail."""
    size = batch_size(workload)
    if size is None:
        return None
    sizes = sorted({max(size // 16, 1), max(size // 4, 1), size, size * 4, size * 16})
    try:
        return run_sweep(Range("batch", tuple(sizes)), workload, question)
    except TraceError:
        return None
