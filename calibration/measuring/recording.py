"""Runs a step under the framework's own event recorder, reads the events, and finds what recording costs.

``torch.profiler`` records in C++ when each op begins and ends, at about a microsecond per event.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from placer.calibration.measuring.events import Event, Kind, RawEvent, assign, is_runtime_call
from placer.calibration.measuring.faults import synchronizer
from placer.calibration.measuring.timing import Clock, Timed, Timer
from placer.placement import synchronize

# The recorder's library prints its life cycle on stderr unless told otherwise before it starts.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

STEP_MARK = "placer::step"
#: Kernels at the head of a session beyond those that it is known to lose.
GIVEN_AWAY = 32
#: Seconds of work that bring any device's clock back; rows of the matrices whose products are that work, and products
#: between two looks at the clock: less than 10 ms of work on the slowest device.
WARM, ROWS, PRODUCTS = 0.15, 1024, 4
#: Seconds of products before what is recorded, and the rows of their matrices: few events, each of much work.
WARMING, WARMING_ROWS = 0.03, 2048


def keep_busy(device: str, seconds: float, clock: Clock, *, rows: int = ROWS) -> None:
    """Let an accelerator multiply matrices for ``seconds``, and wait for it, so that its clock is up.

    A device that idles lowers its clock: an H200's falls from 1980 MHz to 345 MHz, and is back after some tens of
    milliseconds of work. Real training keeps it up, so what is timed must run at that clock too.
    """
    synchronize = synchronizer(device)
    assert synchronize is not None
    square = torch.ones(rows, rows, device=device)
    product = torch.empty_like(square)
    end = clock() + seconds
    while clock() < end:
        for _ in range(PRODUCTS):
            torch.mm(square, square, out=product)
        synchronize()


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded step: its seconds, its events in the order of their start, and the host's as they were read."""

    seconds: float
    events: Sequence[Event] = ()
    host_events: Sequence[RawEvent] = ()


#: Numbers of the recorder's sessions in this process that record an accelerator.
_session_numbers = itertools.count()


def record(timed: Callable[[], float], rounds: int, *, accelerated: bool = False) -> list[Recorded]:
    """Recorded steps. ``timed`` runs one and returns its seconds; ``accelerated``: record kernels of a GPU too."""
    shown = kind_shown() if accelerated else None

    def marked() -> float:
        with record_function(STEP_MARK):
            return timed()

    with recorder_of(activities(shown)) as recorder:
        if shown is not None:
            give_away_kernels(torch.device(shown), partial(synchronize, shown))
        runs = [marked() for _ in range(rounds)]
    assert recorder.profiler is not None
    assert recorder.profiler.kineto_results is not None
    found = read_steps(recorder.profiler.kineto_results.events())
    # Where the recorder lost the marks, nothing was recorded.
    steps = itertools.chain(found, itertools.repeat(((), ())))
    return [Recorded(seconds, *step) for seconds, step in zip(runs, steps, strict=False)]


def kind_shown() -> str | None:
    """The kind of accelerator whose kernels the recorder can show in this process."""
    able = torch.profiler.supported_activities()
    if ProfilerActivity.CUDA in able:
        return "cuda"
    # What a backend that is no part of torch tells torch's recorder.
    return torch._C._get_privateuse1_backend_name() if ProfilerActivity.PrivateUse1 in able else None


def activities(shown: str | None) -> list[ProfilerActivity]:
    """What to record: the host's ops, and the kernels of this kind of accelerator."""
    if shown is None:
        return [ProfilerActivity.CPU]
    return [ProfilerActivity.CPU, ProfilerActivity.CUDA if shown == "cuda" else ProfilerActivity.PrivateUse1]


def give_away_kernels(device: torch.device, synchronize: Callable[[], None]) -> None:
    """Run kernels at the head of a session for the recorder to lose.

    From CUDA 12.6 to 13.0 every session of a process loses one kernel more than the session before, at its head
    (pytorch/pytorch#192021). The first launch of a session also asks for memory, which takes milliseconds. Starting the
    recorder lets the device idle, and its clock fall: large products bring it back.
    """
    tiny = torch.ones(8, device=device)
    for _ in range(next(_session_numbers) + GIVEN_AWAY):
        tiny.neg_()
    synchronize()
    if device.type == "cuda":
        keep_busy(str(device), WARMING, time.perf_counter, rows=WARMING_ROWS)


@contextmanager
def recorder_of(activities: Iterable[ProfilerActivity]) -> Iterator[profile]:
    """Run torch's recorder in the body; its results are there afterwards."""
    recorder = profile(activities=activities)
    try:
        with warnings.catch_warnings():
            # Since torch 2.11 it warns that it forgets earlier cycles, of which there are none.
            warnings.filterwarnings("ignore", message=".*Profiler clears events")
            recorder.start()
    except BaseException:
        # One that did not start as a whole may still record, and would refuse the next session.
        with suppress(Exception):
            recorder.stop()
        raise
    try:
        yield recorder
    finally:
        recorder.stop()


def read_event(event: Any) -> RawEvent | None:
    """What is read of one of the recorder's events, once: each of its methods is a call into C++.

    None for what is neither an op, a call nor a kernel. A range that the user named (an optimizer's step is one) has an
    event on the device too, from its first kernel to its last: counted with them, the range would take twice its time
    (pytorch/pytorch#130730). What the recorder itself cost has numbers that mean nothing.
    """
    name, linked = event.name(), event.linked_correlation_id()
    annotation = getattr(event, "is_user_annotation", bool)  # torch 2.5 and later
    kind: Kind = "op"
    sequence, thread = -1, 0
    if event.device_type() != DeviceType.CPU:
        if annotation():
            return None
        kind = "memcpy" if name.startswith("Memcpy") else "memset" if name.startswith("Memset") else "kernel"
    else:
        if linked or is_runtime_call(name):
            kind = "runtime"
        elif "::" not in name and getattr(event, "activity_type", str)() == "overhead":
            return None
        elif annotation():
            kind = "annotation"
        sequence, thread = event.sequence_nr(), event.start_thread_id()
    number = event.correlation_id()
    return RawEvent(name, event.start_ns(), event.end_ns(), sequence, thread, number, kind, linked)


def read_steps(raw: Iterable[Any]) -> Iterator[tuple[Sequence[Event], Sequence[RawEvent]]]:
    """(events, the host's events as read) of each marked step, in the order of their start."""
    found = assign(event for event in map(read_event, raw) if event is not None)
    for mark in found.host:
        if mark.name == STEP_MARK:
            on_host = found.within(mark.start_ns, mark.end_ns, without=STEP_MARK)
            yield found.nested(on_host), on_host


#: Seconds from which on a step is long: it repeats itself well enough to be timed less often.
LONG_STEP = 0.02
#: Recorded steps where steps are long.
LEAST_RECORDED = 4
#: Untimed steps after the recorder, where they are not long: they take 1.4, 1.15 and 1.07 times what later ones take.
AFTER_RECORDING = 3


def in_turns(
    timer: Timer, before: int, recorded: int, after: int, *, once: float = 0.0
) -> tuple[list[Timed], list[Recorded]]:
    """(undisturbed steps, recorded steps). ``once``: seconds of a step, about.

    Undisturbed steps run ``before`` and ``after`` the ``recorded`` ones, so that drift shifts both alike. In the first
    recorded step the recorder's memory is fresh and its code is cold: it counts only where steps are long.
    """
    around = [timer.time() for _ in range(before)]
    runs = record(timer.seconds, recorded, accelerated=timer.synchronize is not None)
    for _ in range(AFTER_RECORDING if once < LONG_STEP else 0):
        timer.seconds()
    around += [timer.time() for _ in range(after)]
    return around, runs[1:] if len(runs) > LEAST_RECORDED else runs


@dataclass(frozen=True, slots=True)
class RecorderCost:
    """Seconds that recording adds to a step, and to whatever holds an event for each of them."""

    per_step: float
    per_event: float


#: Layers of the chains, and the rounds in which each is timed.
CHAINS, COST_ROUNDS = (2, 8, 24), 4
#: Seconds after which no round is begun: on a slow machine fewer rounds do.
MOST_SECONDS = 2.0
#: Undisturbed steps on both sides of the recorded ones, and recorded steps.
UNDISTURBED, COST_RECORDED = 10, 6
#: Seconds that one event costs at most, on any machine measured so far.
MOST_PER_EVENT = 5e-6


def recorder_cost(clock: Clock = time.perf_counter) -> RecorderCost:
    """What recording adds to a step on the CPU: chains of tiny layers are trained with and without it, in turns.

    One disturbed moment must not decide: the cost per event is the median slope over all pairs of chains of all rounds
    (Sen, 1968).
    """
    chains = [Timer(_layers(depth), clock=clock) for depth in CHAINS]
    for chain in chains:
        for _ in range(3):
            chain.run()
    record(chains[0].seconds, 1)  # the first session of a process sets the recorder up
    points: list[tuple[float, float]] = []
    slopes: list[float] = []
    end = clock() + MOST_SECONDS
    for number in range(COST_ROUNDS):
        if number and clock() >= end:
            break
        costs = [_added_by_recording(chain) for chain in chains]
        points += costs
        slopes += [(b - a) / (n - m) for (m, a), (n, b) in itertools.combinations(costs, 2) if n != m]
    per_event = min(max(statistics.median(slopes), 0.0), MOST_PER_EVENT) if slopes else 0.0
    per_step = max(statistics.median(added - n * per_event for n, added in points), 0.0)
    return RecorderCost(per_step, per_event)


def _added_by_recording(timer: Timer) -> tuple[float, float]:
    """(events of a step, seconds that recording them adds)."""
    around, recorded = in_turns(timer, UNDISTURBED, COST_RECORDED, UNDISTURBED)
    with_recorder = statistics.median(run.seconds for run in recorded)
    events = statistics.median(len(run.events) for run in recorded)
    return events, with_recorder - statistics.median(run.seconds for run in around)


def _layers(depth: int) -> Callable[[], None]:
    chain = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(16, 16), nn.Tanh())))
    rows = torch.randn(16, 16)

    def step() -> None:
        chain.zero_grad()
        chain(rows).sum().backward()

    return step


#: Kernels of a chain, fewer than a queue holds; and times it is issued before and after the first session, and in it.
CHAIN, CHAIN_ROUNDS, CHAIN_RECORDED = 64, 60, 3
#: Share of the chain's kernels that must be reported.
LEAST_SEEN = 0.5
#: Seconds that the first session added to a launch, by kind of device: it can be measured once in a process.
_per_launch_by_kind: dict[str, float] = {}


@dataclass(frozen=True)
class KernelRecorder:
    """``sees`` the device's kernels or not; ``per_launch``: seconds that a launch takes longer since it was used.

    ``kernel_seconds`` is what it says a kernel takes that does next to nothing, 0.0 where it sees none.
    """

    sees: bool
    per_launch: float = 0.0
    kernel_seconds: float = 0.0


#: That of a device whose kernels the recorder does not show.
UNSEEN = KernelRecorder(sees=False)


def try_recorder(device: str, clock: Clock = time.perf_counter) -> KernelRecorder:
    """Issue, record and issue again a chain of known kernels on an accelerator.

    In a process that used the recorder before, ``per_launch`` is what its first session added.
    """
    kind = torch.device(device).type
    if kind != kind_shown():
        return UNSEEN
    synchronize = synchronizer(device)
    assert synchronize is not None
    tiny = torch.ones(8, device=device)

    def issued() -> float:
        """Seconds until the chain is issued; the wait for it does not count."""
        start = clock()
        for _ in range(CHAIN):
            tiny.neg_()
        seconds = clock() - start
        synchronize()
        return seconds

    def launch() -> float:
        return statistics.median(issued() for _ in range(CHAIN_ROUNDS)) / CHAIN

    issued()
    before = launch()
    runs = record(issued, CHAIN_RECORDED, accelerated=True)
    # More than a launch itself takes is a disturbance.
    _per_launch_by_kind.setdefault(kind, min(max(launch() - before, 0.0), before))
    seen = [event.device_seconds for run in runs for event in run.events if event.name == "aten::neg_"]
    seen = [seconds for seconds in seen if seconds > 0.0]
    sees = len(seen) >= LEAST_SEEN * CHAIN
    kernel_seconds = statistics.median(seen) if sees else 0.0
    return KernelRecorder(sees, _per_launch_by_kind[kind], kernel_seconds)
