"""``placer explain`` for a target that is a ``placer.Job``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from placer.cli import sweep as sweeps
from placer.cli.output import rendered, rendered_sweep, write_result
from placer.cli.shapes import Range
from placer.decision import Objective
from placer.explanation import Explanation
from placer.jobs import Plans, explain_job
from placer.workload import Job


def job_explanation(
    job: Job, wanted: Range | None, names: Sequence[str] | None,
    profiles: Sequence[str], what_if: str | None, aim: Objective, form: str, output: str | None,
) -> None:  # fmt: skip
    """Write why the job runs where it does, or the ``wanted`` sweep, as ``form`` to ``output``.

    Raises PlacerError where it cannot be priced.
    """
    plans: Plans = {}  # what a sweep leaves alone is priced once
    explain = partial(_explained, names=names, profiles=profiles, what_if=what_if, aim=aim, plans=plans)
    swept = None if wanted is None else sweeps.of_job(wanted, job, partial(explain, advice=False))
    if swept is not None and form != "html":
        write_result(rendered_sweep(swept, form, output), output)
    else:
        write_result(rendered(explain(job), form, output, swept), output)


def _explained(
    job: Job, *, names: Sequence[str] | None, profiles: Sequence[str], what_if: str | None, aim: Objective,
    advice: bool = True, plans: Plans,
) -> Explanation:  # fmt: skip
    return explain_job(job, names, list(profiles) or None, what_if, aim, advice=advice, plans=plans)
