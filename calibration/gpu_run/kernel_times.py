"""What the recorder says a kernel takes, and what each of a burst takes: the difference is the gap between kernels."""

from __future__ import annotations

import statistics
import time

import torch
from torch.profiler import record_function

from placer import machine
from placer.calibration.gpu_run.bursts import MEMORY_SHARE, burst
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines
from placer.calibration.gpu_run.sessions import steps_of
from placer.calibration.measuring.recording import STEP_MARK, activities, kind_shown, recorder_of
from placer.placement import synchronize

#: Elements of the operand: 8 to 2^24.
SIZES = tuple(1 << power for power in range(3, 25, 3))
#: Kernels of a burst, fewer than a queue holds; in front of those that are recorded; rounds of a burst.
BURST, PREFIX, ROUNDS = 64, 128, 9
#: Seconds that the product lasts that keeps the device busy while a burst is issued, and its rows: the first tried, and
#: the most.
COVER, FIRST_ROWS, MOST_ROWS = 2e-3, 128, 8192


def run(job: Job, lines: Lines) -> None:
    """A line for each size."""
    cover = _cover(job.device)
    for size in SIZES:
        question = {"what": "kernel", "elements": size}
        if not job.left or 4 * size > MEMORY_SHARE * machine.memory(job.device)[0]:
            break
        if question in lines:
            continue
        x = torch.ones(size, device=job.device)
        waiting = _burst_seconds(x, cover, job)
        recorded = _recorded_seconds(x, job.device)
        lines.add(question, burst_seconds=waiting, recorded_seconds=recorded)


def _cover(device: str) -> torch.Tensor:
    """A square matrix whose product with itself takes ``COVER`` seconds, or the largest."""
    rows = FIRST_ROWS
    while True:
        square = torch.ones(rows, rows, device=device)
        if rows >= MOST_ROWS or burst(lambda: torch.mm(square, square), device, seconds=COVER).seconds >= COVER:  # noqa: B023
            return square
        rows *= 2


def _burst_seconds(x: torch.Tensor, cover: torch.Tensor, job: Job) -> float:
    """Seconds of a kernel that waits behind others in the queue."""

    def seconds(kernels: int) -> float:
        synchronize(job.device)
        start = time.perf_counter()
        torch.mm(cover, cover)
        for _ in range(kernels):
            x.neg_()
        synchronize(job.device)
        return time.perf_counter() - start

    seconds(1)
    # In turns, as clocks rise.
    found = [(seconds(0), seconds(BURST))]
    while len(found) < ROUNDS and job.left:
        found.append((seconds(0), seconds(BURST)))
    return (statistics.median(full for _, full in found) - statistics.median(empty for empty, _ in found)) / BURST


def _recorded_seconds(x: torch.Tensor, device: str) -> float | None:
    """Median seconds of a kernel as the recorder shows it; None where it shows none."""
    with recorder_of(activities(kind_shown())) as session:
        for _ in range(PREFIX):
            x.neg_()
        with record_function(STEP_MARK):
            for _ in range(BURST):
                x.neg_()
            synchronize(device)
    steps = steps_of(session)
    found = [e.device_seconds for e in (steps[0][0] if steps else ()) if e.name == "aten::neg_" and e.device_seconds]
    return statistics.median(found) if found else None
