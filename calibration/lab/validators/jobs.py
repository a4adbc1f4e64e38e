"""Predicted beside measured time of whole jobs that real libraries run, on the CPU of this machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import placer
from placer.calibration.lab.suite.jobs import JOBS
from placer.calibration.lab.validators.rows import report
from placer.calibration.validation.run import say
from placer.calibration.validation.table import Table
from placer.errors import PlacerError
from placer.pricing import Cost
from placer.profile import Profile
from placer.units import format_seconds
from placer.workload import Job

#: Times that each job runs; the median counts. One more before warms up.
RUNS = 5
COLUMNS = ("job", "parts", "predicted", "90 % interval", "measured", "predicted / measured")


@dataclass(frozen=True)
class JobRow:
    """A job, what was predicted of it on the CPU, and the seconds of its runs."""

    name: str
    job: Job
    cost: Cost
    runs: tuple[float, ...]

    @property
    def measured(self) -> float:
        return statistics.median(self.runs)

    @property
    def ratio(self) -> float:
        return self.cost.step_seconds / self.measured

    def cells(self) -> tuple[str, ...]:
        """The job under ``COLUMNS``."""
        parts = ", ".join(f"{part.count:,g} × {part.name}" for part in self.job.parts)
        predicted, low, high = map(format_seconds, (self.cost.step_seconds, self.cost.low, self.cost.high))
        return self.name, parts, predicted, f"{low} to {high}", format_seconds(self.measured), f"{self.ratio:.2f}"


def validate_jobs(
    profile: Profile | None = None,
    output: Path | None = None,
    names: Sequence[str] = tuple(JOBS),
    runs: int = RUNS,
) -> int:
    """Predict and run every job whose library is installed, print the table; returns the exit code.

    ``profile`` None: this machine's. ``output`` gets the table as Markdown. The exit code is 1 if no job can be run.
    """
    rows = list(measure(names, profile, runs))
    table = Table("Jobs on this CPU", COLUMNS, tuple(row.cells() for row in rows))
    inside = sum(row.cost.low <= row.measured <= row.cost.high for row in rows)
    return report(rows, [table, "", f"{inside} of {len(rows)} inside their 90 % interval"], output, (0, 1))


def measure(names: Sequence[str], profile: Profile | None, runs: int) -> Iterator[JobRow]:
    """Each job, predicted, then run. What is left out is said, with the reason."""
    for name in names:
        try:
            job, run = JOBS[name]()
            cost = placer.explain(job, devices="cpu", profile=profile).devices["cpu"]
        except (PlacerError, ImportError) as error:
            say(f"{name}: {error}")
            continue
        say(f"{name}: {runs + 1} runs of about {format_seconds(cost.step_seconds)}")
        run()
        yield JobRow(name, job, cost, tuple(run() for _ in range(runs)))
