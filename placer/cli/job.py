"""``placer explain`` for a target that is a ``placer.Job``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from placer.cli import sweep as sweeps
from placer.cli.output import rendered, rendered_sweep, write_result
from placer.cli.shapes import Range
from placer.explanation import Explanation
from placer.jobs import explain_job
from placer.workload import Job, check_available


def job_explanation(
    job: Job, wanted: Range | None, names: Sequence[str] | None, profiles: Sequence[str], what_if: str | None,
    form: str, output: str | None,
) -> None:  # fmt: skip
    """Write why the job runs where it does, or the ``wanted`` sweep, as ``form`` to ``output``.

    Raises ValueError for a sweep over what the job does not have, and PlacerError where it cannot be priced.
    """
    if not profiles and names is not None:
        check_available(names)
    explain = partial(_explained, names=names, profiles=profiles, what_if=what_if)
    swept = None if wanted is None else sweeps.of_job(wanted, job, partial(explain, advice=False))
    if swept is not None and form != "html":
        write_result(rendered_sweep(swept, form, output), output)
    else:
        write_result(rendered(explain(job), form, output, swept), output)


def _explained(
    job: Job, *, names: Sequence[str] | None, profiles: Sequence[str], what_if: str | None, advice: bool = True
) -> Explanation:
    return explain_job(job, (), "host", names, "keep", list(profiles) or None, what_if, advice=advice)
