"""The ops of one recorded step of each network, with kernels and launches: enough to replay it without the device.

It comes after the networks were timed, in a process of its own: using the recorder makes every later launch slower.
"""

from __future__ import annotations

import time

import torch

from placer.calibration.gpu_run import networks
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines, Question
from placer.calibration.measuring.clocks import WARM, keep_busy
from placer.calibration.measuring.failures import KernelsLostError
from placer.calibration.measuring.health import cause, release, synchronizer
from placer.calibration.measuring.recording import Recorded, kind_shown, record
from placer.calibration.measuring.step import Step, make_optimizer
from placer.calibration.measuring.stopwatch import Stopwatch
from placer.calibration.suite import Entry
from placer.calibration.validation.cells import build_model, cell_workload, cells_of
from placer.calibration.validation.record import Cell

#: Steps before one is recorded, and recorded steps, of which the last that lost the fewest kernels is kept.
WARM_UP, RECORDED = 2, 2


def run(job: Job) -> None:
    """A line in ``steps.jsonl`` for each network: its largest batch, in training where it trains."""
    lines = Lines(job.folder / "steps.jsonl")
    for entry in (*networks.on_device(job), *networks.in_bfloat16(job)):
        if not job.left:
            break
        if entry.missing():
            continue
        cell = max(cells_of(entry, [(job.device, torch.get_num_threads())]), key=lambda c: (c.mode == "train", c.batch))
        question = {"network": entry.name, "batch": cell.batch, "mode": cell.mode, "device": job.device}
        if question not in lines:
            _one(job, lines, question, entry, cell)
            release(job.device)


def _one(job: Job, lines: Lines, question: Question, entry: Entry, cell: Cell) -> None:
    try:
        whole = _recorded(job.device, _step(job.device, entry, cell))
        if whole.lost:
            raise KernelsLostError(f"the recorder lost the kernels of {whole.lost} of {whole.launches} launches")
        ops = [
            [event.name, event.kernels, round(event.device_seconds * 1e6, 3), round((event.end - event.start) * 1e6, 3)]
            for event in whole.events
        ]
        lines.add(
            question, seconds=whole.seconds, kernels_shown=kind_shown() == job.kind, launches=whole.launches, lost=0,
            fields=["op", "kernels", "device_us", "host_us"], ops=ops,
        )  # fmt: skip
    except Exception as error:  # noqa: BLE001  one network that fails must not cost the others
        lines.fail(question, cause(error))


def _step(device: str, entry: Entry, cell: Cell) -> Step:
    model = build_model(entry).to(device)
    optimizer = make_optimizer(model, entry.optimizer) if cell.mode == "train" else None
    step = Step(cell_workload(entry, model, cell, entry.data or "host"), device, optimizer)
    step.prepare()
    for _ in range(WARM_UP):
        step()
    return step


def _recorded(device: str, step: Step) -> Recorded:
    if torch.device(device).type == "cuda":
        keep_busy(device, WARM, time.perf_counter)
    timed = Stopwatch(step, synchronizer(device), time.perf_counter, None).seconds
    runs = [run for run, _ in record(timed, RECORDED, accelerated=True)]
    return min(reversed(runs), key=lambda run: run.lost)
