"""Times ops where they stand: inside a real step, by the framework's own event recorder.

The same op costs 0.5 to 3 times its hot-loop time inside a step: caches are cold, memory is fresh, autograd records.
So every op sample placer learns from is taken in place. ``torch.profiler`` records when each op begins and ends, in
C++, at about a microsecond per event; the step is timed without it too, and the difference, divided by the number of
events, is what recording added to each: it is taken off again.

The events of a step are matched, in order, with the op calls of its trace, so that a sample carries exactly the
features that pricing will see.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import nn
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from placer.calibration.pulse import Pulse, at_usual_pace, watched
from placer.tracing.trace import OpCall, Trace

# The recorder's library prints its life cycle on stderr unless told otherwise before it starts.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

STEP_MARK = "placer::step"
#: Events without a match that may be passed over in search of the next op call.
LOOK_AHEAD = 200
#: What the events of autograd's nodes are called, up to the node's own name.
BACKWARD_NODE = "autograd::engine::evaluate_function"
#: Undisturbed and recorded steps at most: reading the events of a recorded step costs more than the step.
MOST_ROUNDS, MOST_RECORDED = 20, 3
#: Steps that last longer (seconds) repeat themselves well enough to be timed less often.
LONG_STEP = 0.02
#: Most by which recorded steps may differ from undisturbed ones before something else than drift is at work, and the
#: standard deviation of its log: a virtual machine changes pace within a second.
MOST_DRIFT, DRIFT = 1.5, 0.1
#: Standard deviation of what recording added, in parts of what it is taken for: the recorder's code is cold at first.
RECORDING_DOUBT = 0.3
#: Layers of the chains that recording is timed on, and how often each is.
CHAINS, COST_ROUNDS = (2, 8, 24), 4
#: Seconds one event costs at most, wherever placer has run.
MOST_PER_EVENT = 5e-6
#: What recording an event costs, in costs of the average one: of events nested in an op, of all others (ops carry their
#: inputs' sequence, autograd's nodes put their names together first), and what of an op's own lands between its ends.
NESTED_COST, OUTER_COST, OWN_SHARE = 0.75, 1.28, 0.2
#: Least share of an op's recorded time that is its own, however many events it holds.
LEAST_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded interval on the host, in seconds; ``inside`` counts the events nested in it."""

    name: str
    start: float
    end: float
    sequence: int
    inside: int
    device_seconds: float


@dataclass(frozen=True, slots=True)
class RecorderCost:
    """Seconds recording adds to a step, and to whatever holds an event for each of them."""

    per_step: float
    per_event: float


@dataclass(frozen=True, slots=True)
class OpTiming:
    """One op call of the trace and its event: seconds on the host, events recorded within, seconds on the device."""

    call: OpCall
    host_seconds: float
    inside: int
    device_seconds: float

    def corrected(self, recorder: RecorderCost) -> float:
        """Host seconds without what recording added, never less than a quarter of what was seen."""
        added = recorder.per_event * (NESTED_COST * self.inside + OWN_SHARE)
        return max(self.host_seconds - added, LEAST_SHARE * self.host_seconds)


@dataclass(frozen=True)
class StepTiming:
    """One step timed twice: whole and undisturbed (``seconds``), and op by op in steps of ``recorded_seconds``.

    ``beat`` is the median beat of the machine's pulse around them, in seconds; 0 where it was not felt.
    """

    seconds: float
    spread: float
    recorded_seconds: float
    events: int
    ops: tuple[OpTiming, ...]
    matched: float
    beat: float = 0.0

    def undisturbed_share(self, recorder: RecorderCost) -> float:
        """Seconds of an undisturbed step per second of a recorded one, recording taken off: 1 but for drift and noise.

        Ops are timed in recorded steps, the step in others; brought to one speed they add up. Where recording took
        longer than the step itself, their quotient says little of the machine's pace, and is drawn towards 1.
        """
        nested = min(sum(op.inside for op in self.ops), self.events)
        added = recorder.per_event * (NESTED_COST * nested + OUTER_COST * (self.events - nested))
        recorded = self.recorded_seconds - recorder.per_step - added
        doubt = RECORDING_DOUBT * (recorder.per_step + added) / self.seconds
        known = DRIFT**2 / (DRIFT**2 + doubt**2)
        return float(min(max(self.seconds / max(recorded, 1e-9), 1.0 / MOST_DRIFT), MOST_DRIFT) ** known)


def time_step(
    step: Callable[[], object],
    trace: Trace,
    *,
    synchronize: Callable[[], None] | None = None,
    seconds: float = 0.1,
    clock: Callable[[], float] = time.perf_counter,
    pulse: Pulse | None = None,
) -> StepTiming:
    """Time ``step`` (already warm) whole and op by op, within about ``seconds`` (at least two steps of each).

    Another shape teaches more than another repetition of this one: repetitions are as few as a median allows. With a
    ``pulse``, steps at another pace than the machine's usual one are left out where there are others.
    """

    def timed() -> float:
        return _timed(step, synchronize, clock)

    once = timed()
    rounds = int(min(max(seconds / 2 / max(once, 1e-6), 2), MOST_ROUNDS))
    # Undisturbed steps on both sides of the recorded ones: a machine that drifts shifts both alike.
    around = watched(pulse, timed, rounds + 1)
    recorded = at_usual_pace(pulse, _record(step, MOST_RECORDED if once < LONG_STEP else 2, synchronize, clock, pulse))
    around = at_usual_pace(pulse, around + watched(pulse, timed, rounds // 2))
    whole = sorted(took for took, _ in around)
    median = statistics.median(whole)
    matched = [_match(trace, run.events) for run, _ in recorded]
    timings = [_median_timing(seen) for seen in zip(*matched, strict=True)]
    found = [t for t in timings if t is not None]
    spread = (whole[len(whole) * 3 // 4] - whole[len(whole) // 4]) / median
    return StepTiming(
        seconds=median,
        spread=spread,
        recorded_seconds=statistics.median(run.seconds for run, _ in recorded),
        events=round(statistics.median(len(run.events) for run, _ in recorded)),
        ops=tuple(found),
        matched=len(found) / max(len(timings), 1),
        beat=statistics.median(beat for _, beat in (*around, *recorded)),
    )


def recorder_cost(
    device: str,
    *,
    synchronize: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    pulse: Pulse | None = None,
) -> RecorderCost:
    """What recording costs here: chains of tiny layers of several lengths, trained with and without it, in turns.

    Whatever it is taken for too much is taken off the ops and charged to what lies between them, so one disturbed
    moment must not decide: the median slope over all pairs of lengths of all rounds (Sen, 1968).
    """
    _record(lambda: None, 1, synchronize, clock)  # the first recording of a process sets the recorder up
    chains = [_chain(depth, device) for depth in CHAINS]
    for step in chains:
        for _ in range(3):
            step()
    points, slopes = [], []
    for _ in range(COST_ROUNDS):
        found = [_added(step, synchronize, clock, pulse) for step in chains]
        points += found
        slopes += [(b - a) / (n - m) for (m, a), (n, b) in itertools.combinations(found, 2) if n != m]
    per_event = min(max(statistics.median(slopes), 0.0), MOST_PER_EVENT) if slopes else 0.0
    return RecorderCost(max(statistics.median(added - n * per_event for n, added in points), 0.0), per_event)


def _chain(depth: int, device: str) -> Callable[[], None]:
    chain = nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(16, 16), nn.Tanh()))).to(device)
    rows = torch.randn(16, 16, device=device)

    def step() -> None:
        chain.zero_grad()
        chain(rows).sum().backward()

    return step


def _added(
    step: Callable[[], None], synchronize: Callable[[], None] | None, clock: Callable[[], float], pulse: Pulse | None
) -> tuple[float, float]:
    """(events of a step, seconds that recording them adds)."""

    def timed() -> float:
        return _timed(step, synchronize, clock)

    around = watched(pulse, timed, MOST_ROUNDS // 2)
    recorded = at_usual_pace(pulse, _record(step, MOST_RECORDED, synchronize, clock, pulse))
    around = at_usual_pace(pulse, around + watched(pulse, timed, MOST_ROUNDS // 2))
    events = statistics.median(len(run.events) for run, _ in recorded)
    return events, statistics.median(run.seconds for run, _ in recorded) - statistics.median(s for s, _ in around)


def _timed(step: Callable[[], object], synchronize: Callable[[], None] | None, clock: Callable[[], float]) -> float:
    start = clock()
    step()
    if synchronize is not None:
        synchronize()
    return clock() - start


@dataclass(frozen=True, slots=True)
class Recorded:
    """One step under the recorder: how long it took (seconds), and its events."""

    seconds: float
    events: list[Event]


def _record(
    step: Callable[[], object],
    rounds: int,
    synchronize: Callable[[], None] | None,
    clock: Callable[[], float],
    pulse: Pulse | None = None,
) -> list[tuple[Recorded, float]]:
    """Recorded steps, each with the less usual of the beats around it."""
    activities = [ProfilerActivity.CPU]
    if synchronize is not None and torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)

    def marked() -> float:
        with record_function(STEP_MARK):
            return _timed(step, synchronize, clock)

    # Waiting for the usual pace is full of ops: it is over before they are recorded.
    before = None if pulse is None else pulse.settle()
    with profile(activities=activities) as recorder:
        runs = watched(pulse, marked, rounds, before=before)
    assert recorder.profiler is not None
    assert recorder.profiler.kineto_results is not None
    steps = _steps(recorder.profiler.kineto_results.events())
    # Should the recorder have lost the marks, nothing was recorded.
    events = itertools.chain(steps, itertools.repeat([]))
    return [(Recorded(seconds, found), beat) for (seconds, beat), found in zip(runs, events, strict=False)]


@dataclass(frozen=True, slots=True)
class RawEvent:
    """What is read of one of the recorder's events, once: each of its answers is a call into C++."""

    name: str
    start_ns: int
    end_ns: int
    sequence: int
    thread: int
    number: int

    @classmethod
    def of(cls, event: Any) -> RawEvent:
        return cls(event.name(), event.start_ns(), event.end_ns(), event.sequence_nr(), event.start_thread_id(),
                   event.correlation_id())  # fmt: skip


def _steps(raw: Sequence[Any]) -> Iterator[list[Event]]:
    """The host events of each marked step, in order of their start, each with the device time of its kernels."""
    kernels: dict[int, float] = defaultdict(float)
    host = []
    for event in raw:
        correlation = event.linked_correlation_id()
        if event.device_type() == DeviceType.CPU:
            if correlation == 0:
                host.append(RawEvent.of(event))
        elif correlation > 0:
            kernels[correlation] += event.duration_ns() * 1e-9
    host.sort(key=lambda e: (e.start_ns, -e.end_ns))
    for position, mark in enumerate(host):
        if mark.name == STEP_MARK:
            following = takewhile(lambda e, end=mark.end_ns: e.start_ns < end, host[position + 1 :])  # type: ignore[misc]
            yield nest([e for e in following if e.name != STEP_MARK], kernels)


def nest(events: Sequence[RawEvent], kernels: Mapping[int, float]) -> list[Event]:
    """Counts what is nested in each event and sums its kernels' time (``kernels``: seconds by event number).

    Threads interleave on accelerators, where backward has one of its own: nesting is kept per thread.
    """
    inside = [0] * len(events)
    device = [kernels.get(e.number, 0.0) for e in events]
    open_events: dict[int, list[int]] = defaultdict(list)
    for i, event in enumerate(events):
        stack = open_events[event.thread]
        while stack and events[stack[-1]].end_ns <= event.start_ns:
            stack.pop()
        for parent in stack:
            inside[parent] += 1
            device[parent] += device[i]
        stack.append(i)
    return [
        Event(e.name, e.start_ns * 1e-9, e.end_ns * 1e-9, e.sequence, n, d)
        for e, n, d in zip(events, inside, device, strict=True)
    ]


def _match(trace: Trace, events: Sequence[Event]) -> list[OpTiming | None]:
    """Pairs each op call with its event, walking both in order; None where the device ran something else."""
    result: list[OpTiming | None] = []
    cursor, horizon = 0, -1.0
    names = {event.name for event in events}
    wholes: dict[str, list[tuple[OpCall, Event]]] = defaultdict(list)
    updates = [e for e in events if e.name.startswith("Optimizer.step#")]
    tensors = sum(call.op.startswith("optimizer::") for call in trace.calls)
    calls = trace.calls
    for position, call in enumerate(calls):
        if call.op.startswith("optimizer::"):
            result.append(_share_of_update(call, updates, tensors))
            continue
        if call.op not in names and wholes.get(call.op):
            result.append(_backward_of(call, _forward_of(call, wholes[call.op]), events))
            continue
        found = _find(events, call.op, cursor, horizon)
        following = calls[position + 1].op if position + 1 < len(calls) else None
        if found is None or (following is not None and _comes_first(events, following, cursor, found, horizon)):
            # The device left this op out: were it matched with a later one of its name, all between would be lost.
            result.append(None)
            continue
        event = events[found]
        cursor, horizon = found + 1, event.end
        result.append(OpTiming(call, event.end - event.start, event.inside, event.device_seconds))
        if event.inside and call.phase == "forward":
            wholes[f"{call.op}_backward"].append((call, event))
    return result


def _find(events: Sequence[Event], name: str, cursor: int, horizon: float) -> int | None:
    passed = 0
    for i in range(cursor, len(events)):
        event = events[i]
        if event.start < horizon:
            continue
        if event.name.rstrip("_") == name.rstrip("_"):  # gradients are added up in place where nobody else looks on
            return i
        passed += 1
        if passed > LOOK_AHEAD:
            break
    return None


def _comes_first(events: Sequence[Event], name: str, cursor: int, found: int, horizon: float) -> bool:
    """Whether an event called ``name`` stands outermost before ``found``, others between the two."""
    return any(
        e.name.rstrip("_") == name.rstrip("_") and e.start >= horizon and e.end < events[found].start
        for e in events[cursor:found]
    )


def _share_of_update(call: OpCall, updates: Sequence[Event], tensors: int) -> OpTiming | None:
    """An optimizer's step divided evenly: exact only where the tensors are equal, as in the optimizer's own probes."""
    if not updates:
        return None
    event = updates[0]
    seconds, device = (event.end - event.start) / tensors, event.device_seconds / tensors
    return OpTiming(call, seconds, round(event.inside / tensors), device)


def _forward_of(call: OpCall, candidates: list[tuple[OpCall, Event]]) -> Event:
    """The latest forward this is the gradient of.

    Most gradients read their forward's inputs again, which tells them from forwards that nobody asks a gradient of;
    where none does (dropout keeps its mask only) the latest is taken.
    """
    for i in range(len(candidates) - 1, -1, -1):
        inputs = candidates[i][0].inputs
        if call.inputs[: len(inputs)] == inputs:
            return candidates.pop(i)[1]
    return candidates.pop()[1]


def _backward_of(call: OpCall, forward: Event, events: Sequence[Event]) -> OpTiming | None:
    """The backward of an op kept whole: all nodes of the graph its forward recorded, found by sequence number."""
    recorded = {e.sequence for e in events if e.start >= forward.start and e.end <= forward.end and e.sequence >= 0}
    nodes = [
        e for e in events if e.sequence in recorded and e.start >= forward.end and e.name.startswith(BACKWARD_NODE)
    ]
    if not nodes:
        return None
    return OpTiming(
        call,
        _span(nodes, events),
        sum(e.inside + 1 for e in nodes),
        sum(e.device_seconds for e in nodes),
    )


def _span(nodes: Sequence[Event], events: Sequence[Event]) -> float:
    """Seconds from the first node's start to the last one's end, the engine's time between them included.

    What else ran in between (gradients of another branch) is taken off.
    """
    start, end = nodes[0].start, max(e.end for e in nodes)
    own = {id(e) for e in nodes}
    others, horizon = 0.0, start
    for event in events:
        if event.start < horizon or event.start >= end:
            continue
        horizon = event.end
        if id(event) not in own:
            others += event.end - event.start
    return end - start - others


def _median_timing(seen: Sequence[OpTiming | None]) -> OpTiming | None:
    found = [t for t in seen if t is not None]
    if not found:
        return None
    middle = sorted(found, key=lambda t: t.host_seconds)[(len(found) - 1) // 2]
    device = statistics.median(t.device_seconds for t in found)
    return OpTiming(middle.call, middle.host_seconds, middle.inside, device)
