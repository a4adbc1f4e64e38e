"""Networks on the device, in the order of ``networks.on_device``."""

from __future__ import annotations

from placer.calibration.gpu_run import cells, networks
from placer.calibration.gpu_run.job import Job


def run(job: Job) -> None:
    """Add their cells to the record."""
    cells.measure(job, networks.on_device(job), job.device)
