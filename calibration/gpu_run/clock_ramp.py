"""How a device's clock comes up under load after it idled."""

from __future__ import annotations

import time

import torch

from placer import machine
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines
from placer.placement import synchronize

#: Seconds of idling, of load, and between two readings.
IDLE, LOAD, EVERY = 2.0, 2.0, 0.05
ROWS = 1024


def run(job: Job, lines: Lines) -> None:
    """One line with the readings: seconds under load and what NVML says then, from before the load on."""
    question = {"what": "clock"}
    if job.kind != "cuda" or machine.gpu_clocks(job.index) is None:
        lines.fail(question, f"nobody tells the clock of {job.device}")
        return
    if question in lines:
        return
    square = torch.ones(ROWS, ROWS, device=job.device)
    torch.mm(square, square)
    synchronize(job.device)
    time.sleep(min(IDLE, 0.4 * job.left))
    readings = [(0.0, machine.gpu_clocks(job.index))]
    start = time.perf_counter()
    while (under_load := time.perf_counter() - start) < min(LOAD, job.left):
        if under_load >= len(readings) * EVERY:
            readings.append((under_load, machine.gpu_clocks(job.index)))
        for _ in range(4):
            torch.mm(square, square)
        synchronize(job.device)
    lines.add(question, readings=readings)
