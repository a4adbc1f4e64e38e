"""What the recorder says a kernel takes, and what each of a burst takes: the difference is the gap between kernels."""

from __future__ import annotations

import statistics
import time
from functools import partial

import torch

from placer import machine
from placer.calibration.gpu_run.bursts import MEMORY_SHARE
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines
from placer.calibration.measuring.rates.queueing import BURST, queued
from placer.calibration.measuring.recording import record
from placer.placement import synchronize

#: Elements of the operand: 8 to 2^24.
SIZES = tuple(1 << power for power in range(3, 25, 3))
#: Seconds that bursts of one size may take.
SECONDS = 0.4


def run(job: Job, lines: Lines) -> None:
    """A line for each size."""
    for size in SIZES:
        question = {"what": "kernel", "elements": size}
        if not job.left or 4 * size > MEMORY_SHARE * machine.memory(job.device)[0]:
            break
        if question in lines:
            continue
        x = torch.ones(size, device=job.device)
        waiting = queued(x.neg_, job.device, partial(synchronize, job.device), seconds=SECONDS).kernel
        lines.add(question, burst_seconds=waiting, recorded_seconds=_recorded_seconds(x, job.device))


def _recorded_seconds(x: torch.Tensor, device: str) -> float | None:
    """Median seconds of a kernel as the recorder shows it; None where it shows none."""

    def timed() -> float:
        start = time.perf_counter()
        for _ in range(BURST):
            x.neg_()
        synchronize(device)
        return time.perf_counter() - start

    ((run, _),) = record(timed, 1, accelerated=True)
    found = [e.device_seconds for e in run.events if e.name == "aten::neg_" and e.device_seconds]
    return statistics.median(found) if found else None
