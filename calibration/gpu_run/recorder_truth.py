"""What torch's recorder shows of a chain of known kernels, session after session, and what it costs the process.

Everything goes to ``recorder.jsonl``. What a process does that never used the recorder comes first. How the device's
clock comes up under load after it idled is written down as well.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch.profiler import record_function

from placer import machine
from placer.calibration.gpu_run.bursts import MEMORY_SHARE
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines
from placer.calibration.measuring import recording
from placer.calibration.measuring.rates.queueing import BURST, queued
from placer.calibration.measuring.stopwatch import Stopwatch
from placer.placement import synchronize

#: Kernels of the chain, sessions of each kind, and chains timed outside of sessions.
CHAIN, OF_EACH_KIND, CHAINS = 50, 40, 50
#: Kernels before the chain, besides one for every session before, in sessions that have some.
PREFIX = 32
#: Sessions after the empty one.
AFTER_EMPTY = 5
AFTER = "after all sessions"
#: Elements of the operands whose kernels are timed: 8 to 2^24; and seconds that bursts of one size may take.
SIZES, SECONDS = tuple(1 << power for power in range(3, 25, 3)), 0.4
#: Seconds of idling, of load, and between two readings of the clock; rows of the matrices that are the load.
IDLE, LOAD, EVERY, ROWS = 2.0, 2.0, 0.05, 1024


def run(job: Job) -> None:
    """The recorder's pieces where it shows this device's kernels; how the clock comes up in any case."""
    lines = Lines(job.folder / "recorder.jsonl")
    shown = recording.kind_shown() == job.kind
    if not shown:
        lines.fail({"what": "recorder"}, f"torch's recorder shows no kernels of {job.kind} here")
    whole = job.left
    for work, share in (*(PIECES if shown else ()), (clock_ramp, 0.2)):
        with job.piece(share * whole, lines, work.__name__) as piece:
            work(piece, lines)


class Chain:
    """Known kernels, each the negation of a few numbers."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._tiny = torch.ones(8, device=device)
        self.issue()
        synchronize(device)

    def issue(self, count: int = CHAIN) -> None:
        for _ in range(count):
            self._tiny.neg_()

    def seconds(self) -> tuple[float, float]:
        """Seconds of a chain until it is issued, and until it is done."""
        start = time.perf_counter()
        self.issue()
        issued = time.perf_counter() - start
        synchronize(self.device)
        return issued, time.perf_counter() - start


def sessions(job: Job, lines: Lines) -> None:
    """The chain before any session; sessions as they are and with kernels before it, in turns; the chain after."""
    if {"what": "chain", "when": AFTER} in lines:
        return
    chain = Chain(job.device)
    _outside(chain, lines, "before the first session")
    for number in range(2 * OF_EACH_KIND):
        if not job.left:
            return
        _session(chain, lines, number, number + PREFIX if number % 2 else 0)
    _outside(chain, lines, AFTER)


def empty_session(job: Job, lines: Lines) -> None:
    """A session in which nothing is launched, and some after it: it may end the recording of kernels for good."""
    if {"what": "empty session"} in lines:
        return
    chain = Chain(job.device)
    with recording.recorder_of(recording.activities(recording.kind_shown())):
        pass
    recording.SESSIONS.count += 1
    lines.add({"what": "empty session"})
    for number in range(2 * OF_EACH_KIND, 2 * OF_EACH_KIND + AFTER_EMPTY):
        _session(chain, lines, number, recording.SESSIONS.count + PREFIX)


def _outside(chain: Chain, lines: Lines, when: str) -> None:
    found = [chain.seconds() for _ in range(CHAINS)]
    issued, whole = (statistics.median(each) for each in zip(*found, strict=True))
    lines.add({"what": "chain", "when": when}, kernels=CHAIN, issue_seconds=issued, seconds=whole)


def _session(chain: Chain, lines: Lines, number: int, prefix: int) -> None:
    """One session: its launches, those whose kernels were lost, and the seconds that its stages take."""
    start = time.perf_counter()
    with recording.recorder_of(recording.activities(recording.kind_shown())) as session:
        started = time.perf_counter()
        chain.issue(prefix)
        synchronize(chain.device)
        with record_function(recording.STEP_MARK):
            issued, whole = chain.seconds()
        stopping = time.perf_counter()
    recording.SESSIONS.count += 1
    reading = time.perf_counter()
    steps = list(recording.read_steps(recording.raw_events(session)))
    read = time.perf_counter()
    launches, lost = steps[0][1:] if steps else (0, 0)
    lines.add(
        {"what": "session", "number": number, "prefix": prefix}, launches=launches, lost=lost, issue_seconds=issued,
        seconds=whole, start_seconds=started - start, stop_seconds=reading - stopping, read_seconds=read - reading,
    )  # fmt: skip


def kernel_times(job: Job, lines: Lines) -> None:
    """What the recorder says a kernel takes, and what each of a burst takes: the difference is the gap between kernels.

    A line for each size.
    """
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

    def burst() -> None:
        for _ in range(BURST):
            x.neg_()

    timed = Stopwatch(burst, partial(synchronize, device), time.perf_counter, None).seconds
    ((run, _),) = recording.record(timed, 1, accelerated=True)
    found = [e.device_seconds for e in run.events if e.name == "aten::neg_" and e.device_seconds]
    return statistics.median(found) if found else None


def clock_ramp(job: Job, lines: Lines) -> None:
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


#: In this order, with the share of the time of each. What may break the recorder comes last.
PIECES: tuple[tuple[Callable[[Job, Lines], None], float], ...] = (
    (sessions, 0.5), (kernel_times, 0.2), (empty_session, 0.1),
)  # fmt: skip
