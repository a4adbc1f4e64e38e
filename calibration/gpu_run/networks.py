"""The networks of a run, the most valuable first."""

from __future__ import annotations

from placer.calibration.gpu_run.job import Job
from placer.calibration.suite import Entry, accelerator_entries, entries


def on_device(job: Job) -> list[Entry]:
    """Reference, quick, then all others."""
    return _wanted(job, [*entries("reference"), *entries("quick"), *entries("full")])


def on_cpu(job: Job) -> list[Entry]:
    """Reference and quick."""
    return _wanted(job, [*entries("reference"), *entries("quick")])


def in_bfloat16(job: Job) -> list[Entry]:
    """Those in bfloat16, each beside the same in float32."""
    return _wanted(job, accelerator_entries())


def _wanted(job: Job, some: list[Entry]) -> list[Entry]:
    return list({entry.name: entry for entry in some if entry.name in (job.only or [entry.name])}.values())
