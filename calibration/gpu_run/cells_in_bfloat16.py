"""Networks in bfloat16, and the same in float32, on the device."""

from __future__ import annotations

from placer.calibration.gpu_run import cells, networks
from placer.calibration.gpu_run.job import Job


def run(job: Job) -> None:
    """Add their cells to the record."""
    cells.measure(job, networks.in_bfloat16(job), job.device)
