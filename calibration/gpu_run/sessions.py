"""Kernels that the recorder shows per session, and what a session costs."""

from __future__ import annotations

import statistics
import time

import torch
from torch.profiler import profile, record_function

from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines
from placer.calibration.measuring import recording
from placer.calibration.measuring.events import Event
from placer.calibration.measuring.recording import STEP_MARK, activities, kind_shown, read_steps, recorder_of
from placer.placement import synchronize

#: Kernels of the chain, sessions of each kind, and chains timed outside of sessions.
CHAIN, SESSIONS, CHAINS = 50, 40, 50
#: Kernels before the chain, besides one for every session before, in sessions that have some.
PREFIX = 32
#: Sessions after the empty one.
AFTER_EMPTY = 5
AFTER = "after all sessions"


class Chain:
    """Known kernels, each the negation of a few numbers."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._tiny = torch.ones(8, device=device)
        self.issue()
        synchronize(device)

    def issue(self, count: int = CHAIN) -> None:
        """Launch ``count`` of them."""
        for _ in range(count):
            self._tiny.neg_()

    def seconds(self) -> tuple[float, float]:
        """Seconds of a chain until it is issued, and until it is done."""
        start = time.perf_counter()
        self.issue()
        issued = time.perf_counter() - start
        synchronize(self.device)
        return issued, time.perf_counter() - start


def run(job: Job, lines: Lines) -> None:
    """The chain before any session; sessions as they are and with others before it, in turns; the chain after."""
    if {"what": "chain", "when": AFTER} in lines:
        return
    chain = Chain(job.device)
    _outside(chain, lines, "before the first session")
    for number in range(2 * SESSIONS):
        if not job.left:
            return
        _session(chain, lines, number, number + PREFIX if number % 2 else 0)
    _outside(chain, lines, AFTER)


def run_empty(job: Job, lines: Lines) -> None:
    """A session in which nothing is launched, and some after it: it may end the recording of kernels for good."""
    if {"what": "empty session"} in lines:
        return
    chain = Chain(job.device)
    with recorder_of(activities(kind_shown())):
        pass
    recording.SESSIONS.count += 1
    lines.add({"what": "empty session"})
    for number in range(2 * SESSIONS, 2 * SESSIONS + AFTER_EMPTY):
        _session(chain, lines, number, recording.SESSIONS.count + PREFIX)


def _outside(chain: Chain, lines: Lines, when: str) -> None:
    found = [chain.seconds() for _ in range(CHAINS)]
    issued, whole = (statistics.median(each) for each in zip(*found, strict=True))
    lines.add({"what": "chain", "when": when}, kernels=CHAIN, issue_seconds=issued, seconds=whole)


def _session(chain: Chain, lines: Lines, number: int, prefix: int) -> None:
    """One session: its launches, those whose kernels were lost, and the seconds that its stages take."""
    taken = {}
    start = time.perf_counter()
    with recorder_of(activities(kind_shown())) as session:
        taken["start_seconds"] = time.perf_counter() - start
        chain.issue(prefix)
        synchronize(chain.device)
        with record_function(STEP_MARK):
            issued, whole = chain.seconds()
        stopping = time.perf_counter()
    recording.SESSIONS.count += 1
    taken["stop_seconds"] = time.perf_counter() - stopping
    reading = time.perf_counter()
    steps = steps_of(session)
    taken["read_seconds"] = time.perf_counter() - reading
    launches, lost = steps[0][1:] if steps else (0, 0)
    lines.add(
        {"what": "session", "number": number, "prefix": prefix}, launches=launches, lost=lost, issue_seconds=issued,
        seconds=whole, **taken,
    )  # fmt: skip


def steps_of(session: profile) -> list[tuple[list[Event], int, int]]:
    """(events, launches, launches whose kernels were lost) of each marked step of a session that has ended."""
    assert session.profiler is not None
    assert session.profiler.kineto_results is not None
    return list(read_steps(session.profiler.kineto_results.events()))
