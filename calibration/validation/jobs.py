"""Predicted beside measured time of whole jobs that real libraries run, on the CPU of this machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import placer
from placer.calibration.suite.jobs import JOBS, RealJob, build
from placer.calibration.validation.table import Table, report
from placer.errors import PlacerError
from placer.pricing import Cost
from placer.profile import Profile
from placer.units import format_seconds

#: Times that each job runs; the median counts. One more before warms up.
RUNS = 5

COLUMNS = ("job", "parts", "predicted", "90 % interval", "measured", "predicted / measured")


@dataclass(frozen=True)
class JobRow:
    """A job, what was predicted of it on the CPU, and the seconds of its runs."""

    job: RealJob
    predicted: Cost
    runs: tuple[float, ...]

    @property
    def measured(self) -> float:
        return statistics.median(self.runs)

    @property
    def ratio(self) -> float:
        return self.predicted.step_seconds / self.measured

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high


def validate_jobs(
    *,
    profile: Profile | None = None,
    output: Path | None = None,
    say: Callable[[str], Any] = lambda _: None,
    names: Sequence[str] = tuple(JOBS),
    runs: int = RUNS,
) -> int:
    """Predict and run every job whose library is installed, print the table; returns the exit code.

    ``profile`` None: this machine's. ``output`` gets the table as Markdown. The exit code is 1 if no job can be run.
    """
    rows = list(measure(names, profile, runs, say))
    report(Table("Jobs on this CPU", COLUMNS, tuple(map(cells, rows))), list(summary(rows)), (0, 1), output)
    return 0 if rows else 1


def measure(
    names: Sequence[str], profile: Profile | None, runs: int, say: Callable[[str], Any] = lambda _: None
) -> Iterator[JobRow]:
    """Each job, predicted, then run. What is left out is said, with the reason."""
    for name in names:
        try:
            found = build(name)
            predicted = placer.explain(found.job, devices="cpu", profile=profile).devices["cpu"]
        except (PlacerError, ImportError) as error:
            say(f"{name}: {error}")
            continue
        say(f"{name}: {runs + 1} runs of about {format_seconds(predicted.step_seconds)}")
        found.run()
        yield JobRow(found, predicted, tuple(found.run() for _ in range(runs)))


def cells(row: JobRow) -> tuple[str, ...]:
    """A job under ``COLUMNS``."""
    parts = ", ".join(f"{part.count:,g} × {part.name}" for part in row.job.job.parts)
    low, high = format_seconds(row.predicted.low), format_seconds(row.predicted.high)
    return (
        row.job.name,
        parts,
        format_seconds(row.predicted.step_seconds),
        f"{low} to {high}",
        format_seconds(row.measured),
        f"{row.ratio:.2f}",
    )


def summary(rows: Sequence[JobRow]) -> Iterator[str]:
    """How far off the predictions are."""
    if not rows:
        return
    off = [math.exp(abs(math.log(row.ratio))) - 1.0 for row in rows]
    yield f"off by a factor of {1 + statistics.median(off):.2f} (median), {1 + max(off):.2f} at the most"
    yield f"{sum(row.inside for row in rows)} of {len(rows)} inside their 90 % interval"
