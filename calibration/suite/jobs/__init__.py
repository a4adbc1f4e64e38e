"""Jobs of real libraries: each module builds one, and runs the library for as long as the job says."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from placer.workload import Job

__all__ = ["JOBS", "RealJob", "build"]

#: A module of each job, in the table's order.
JOBS: tuple[str, ...] = ("stable_baselines3", "tabnet", "skorch", "lightning", "trainer", "generate")


@dataclass(frozen=True)
class RealJob:
    """A job, and ``run``, which lets the library do it once and returns the seconds that it took."""

    name: str
    job: Job
    run: Callable[[], float]


def build(name: str) -> RealJob:
    """The job of a module. Raises ImportError where the library is not installed."""
    job, run = importlib.import_module(f"placer.calibration.suite.jobs.{name}").build()
    return RealJob(name, job, run)
