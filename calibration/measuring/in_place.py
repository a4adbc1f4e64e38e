"""Times ops in place: inside a real step, by the framework's own event recorder.

Inside a step an op costs 0.5 to 3 times its time in a hot loop: caches are cold, memory is fresh, autograd records. So
every op sample is taken in place. The step is timed without the recorder too; the difference, divided by the number of
events, is what recording added to each, and is taken off again.

Contention that comes and goes within milliseconds disturbs parts of a step that began and ended undisturbed. On a quiet
machine it can only lengthen, so the fastest repetition of an op counts: of five, its mean error is two thirds of the
median's. People wait for the median step, though, so the timing says how much longer that one takes.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.measuring.events import Event, RawEvent, nest
from placer.calibration.measuring.recording import (
    LEAST_RECORDED,
    LONG_STEP,
    Stopwatch,
    raw_events,
    read_event,
    recorder_of,
)
from placer.calibration.measuring.speed_probe import SpeedProbe
from placer.calibration.measuring.step_timing import OpTiming, StepTiming, typical
from placer.calibration.measuring.timing import Clock
from placer.nest import tensors
from placer.pricing import parameter_updates
from placer.tracing import OpCall, Trace

#: Events without a match that may be passed over in search of the next op call.
LOOK_AHEAD = 200
#: How the names of the events of autograd's nodes begin.
BACKWARD_NODE = "autograd::engine::evaluate_function"
#: How the range around an optimizer's step begins.
UPDATE_RANGE = "Optimizer.step#"
#: Traced name by recorded name, where an op runs under another one: gradients of ``x[index]`` check no index a second
#: time, and on GPUs the batch norms are a library's.
_PLAIN = {
    "aten::_index_put_impl_": "aten::index_put",
    **{
        f"aten::{library}_batch_norm{gradient}": f"aten::native_batch_norm{gradient}"
        for library in ("cudnn", "miopen")
        for gradient in ("", "_backward")
    },
}


def match(trace: Trace, events: Sequence[Event]) -> list[OpTiming | None]:
    """Pair each op call with its event; None where the device ran something else."""
    result: list[OpTiming | None] = []
    cursor, horizon = 0, -1.0
    names = {_traced_name(event) for event in events}
    wholes: dict[str, list[tuple[OpCall, Event]]] = defaultdict(list)
    updates = [e for e in events if e.name.startswith(UPDATE_RANGE)]
    tensors = sum(map(parameter_updates.is_update, trace.calls))
    calls = trace.calls
    for position, call in enumerate(calls):
        if parameter_updates.is_update(call):
            result.append(_share_of_update(call, updates, tensors))
            continue
        if call.op not in names and wholes.get(call.op):
            result.append(_backward_of(call, _forward_of(call, wholes[call.op]), events))
            continue
        found = _find(events, call.op, cursor, horizon)
        following = calls[position + 1].op if position + 1 < len(calls) else None
        if found is None or (following is not None and _comes_first(events, following, cursor, found, horizon)):
            # The device left this op out. Matching it with a later event of its name would lose all events between.
            result.append(None)
            continue
        event = events[found]
        cursor, horizon = found + 1, event.end
        result.append(OpTiming(call, event.end - event.start, event.inside, event.device_seconds, event.kernels))
        if event.inside and call.phase == "forward":
            wholes[f"{call.op}_backward"].append((call, event))
    return result


def _find(events: Sequence[Event], name: str, cursor: int, horizon: float) -> int | None:
    passed = 0
    for i in range(cursor, len(events)):
        event = events[i]
        if event.start < horizon:
            continue
        if _is_called(event, name):
            return i
        passed += 1
        if passed > LOOK_AHEAD:
            break
    return None


def _comes_first(events: Sequence[Event], name: str, cursor: int, found: int, horizon: float) -> bool:
    """Whether an event called ``name`` stands outermost before ``found``, others between the two."""
    return any(
        _is_called(e, name) and e.start >= horizon and e.end < events[found].start for e in events[cursor:found]
    )


def _is_called(event: Event, op: str) -> bool:
    """Whether an event is one of ``op``: gradients are written in place where nothing else uses the tensor."""
    return _traced_name(event).rstrip("_") == op.rstrip("_")


def _traced_name(event: Event) -> str:
    return _PLAIN.get(event.name, event.name)


def _share_of_update(call: OpCall, updates: Sequence[Event], tensors: int) -> OpTiming | None:
    """An equal share of an optimizer's step: exact only where all tensors are equal, as in probes of the optimizer."""
    if not updates:
        return None
    event = updates[0]
    seconds, device = (event.end - event.start) / tensors, event.device_seconds / tensors
    return OpTiming(call, seconds, round(event.inside / tensors), device, event.kernels / tensors)


def _forward_of(call: OpCall, candidates: list[tuple[OpCall, Event]]) -> Event:
    """Take the latest forward that this is the gradient of out of ``candidates``.

    Most gradients read their forward's inputs again, which tells it from forwards without a gradient. Where none does
    (dropout keeps its mask only), the latest is taken.
    """
    for i in range(len(candidates) - 1, -1, -1):
        inputs = candidates[i][0].inputs
        if call.inputs[: len(inputs)] == inputs:
            return candidates.pop(i)[1]
    return candidates.pop()[1]


def _backward_of(call: OpCall, forward: Event, events: Sequence[Event]) -> OpTiming | None:
    """The backward of an op traced as a whole: all graph nodes that its forward recorded, found by sequence number."""
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
        sum(e.kernels for e in nodes),
    )


def _span(nodes: Sequence[Event], events: Sequence[Event]) -> float:
    """Seconds from the first node's start to the last one's end, with the engine's time between them.

    What else ran in between (gradients of another branch) is subtracted.
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


#: Undisturbed and recorded steps at most: reading the events of a recorded step costs more than the step.
MOST_ROUNDS, MOST_RECORDED = 20, 6


def time_step(
    step: Callable[[], object], trace: Trace, *, synchronize: Callable[[], None] | None = None, seconds: float = 0.1,
    clock: Callable[[], float] = time.perf_counter, speed_probe: SpeedProbe | None = None,
    ended: Callable[[], None] | None = None,
) -> StepTiming:  # fmt: skip
    """Time ``step`` (already warm) whole and op by op, within about ``seconds`` (at least two steps of each).

    Repetitions are few: another shape teaches more than another repetition of this one. With a ``speed_probe``, steps
    at another speed than the usual one are left out where there are others. ``ended`` is called right after the last.
    """
    once = Stopwatch(step, synchronize, clock, speed_probe).seconds()
    stopwatch = Stopwatch(step, synchronize, clock, speed_probe, once)
    rounds = int(min(max(seconds / 2 / max(once, 1e-6), 2), MOST_ROUNDS))
    recorded_rounds = MOST_RECORDED if once < LONG_STEP else LEAST_RECORDED
    around, recorded = stopwatch.in_turns(rounds + 1, recorded_rounds, rounds // 2)
    if ended is not None:
        ended()
    reading = statistics.median(reading for _, reading in (*around, *recorded))
    quiet = speed_probe is not None and speed_probe.is_quiet(reading)
    whole = sorted(run.seconds for run, _ in around)
    quarter, median = whole[len(whole) // 4], statistics.median(whole)
    matched = [match(trace, run.events) for run, _ in recorded]
    timings = [_one_of(repetitions, quiet) for repetitions in zip(*matched, strict=True)]
    found = [t for t in timings if t is not None]
    between = [run.seconds - _total(ops) for (run, _), ops in zip(recorded, matched, strict=True)]
    step_seconds = quarter if quiet else median
    return StepTiming(
        seconds=step_seconds, spread=(whole[len(whole) * 3 // 4] - quarter) / median,
        recorded_seconds=_total(found) + (min(between) if quiet else statistics.median(between)),
        events=round(statistics.median(len(run.events) for run, _ in recorded)), ops=tuple(found),
        matched=len(found) / max(len(timings), 1), reading=reading, lengthened=median / step_seconds,
        phases=typical([run.phases for run, _ in around if run.phases is not None], step_seconds),
    )  # fmt: skip


def _one_of(repetitions: Sequence[OpTiming | None], quiet: bool) -> OpTiming | None:
    """One timing for an op's repetitions: the fastest on a quiet machine, else the middle one. None without any."""
    found = sorted((t for t in repetitions if t is not None), key=lambda t: t.host_seconds)
    if not found:
        return None
    chosen = found[0 if quiet else (len(found) - 1) // 2]
    device = statistics.median(t.device_seconds for t in found)
    return OpTiming(chosen.call, chosen.host_seconds, chosen.inside, device, chosen.kernels)


def _total(ops: Sequence[OpTiming | None]) -> float:
    return sum(op.host_seconds for op in ops if op is not None)


#: Undisturbed steps on either side of the waited ones.
LEAST_WHOLE, MOST_WHOLE = 3, 20
#: Waited steps: more do not improve the median, fewer cannot outvote a disturbed one.
LEAST_PASSES, MOST_PASSES = 3, 7
#: Name of the recorded event around a timed op.
OP_MARK = "placer::op"


def time_step_waiting(
    step: Callable[[], object], trace: Trace, *, device: str, synchronize: Callable[[], None], overhead: float,
    seconds: float, clock: Clock,
) -> StepTiming | None:  # fmt: skip
    """Time ``step`` (already warm) whole and op by op, within about ``seconds`` (at least three steps of each).

    ``overhead``: seconds from an op's issue to the end of the wait for it, its kernels not counted. None where steps do
    not repeat the same ops.
    """
    kind = torch.device(device).type
    synchronize()
    undisturbed = Stopwatch(step, synchronize, clock, speed_probe=None).seconds
    whole = [undisturbed()]
    rounds = int(min(max(seconds / 4 / max(whole[0], 1e-6), LEAST_WHOLE), MOST_WHOLE))
    whole += [undisturbed() for _ in range(rounds)]
    calls = _waited_calls(step, kind, synchronize, seconds=seconds / 2, clock=clock)
    structure = _structure(step, kind, synchronize, clock)
    if calls is None or structure is None or [call.name for call in calls] != structure.names:
        return None
    whole += [undisturbed() for _ in range(rounds)]
    waits = structure.sums([max(call.wait - overhead, 0.0) for call in calls])
    issues = structure.sums([call.issue for call in calls])
    # Both lists hold the same events in the same order, so they match the trace alike.
    pairs = list(zip(match(trace, waits), match(trace, issues), strict=True))
    ops = tuple(OpTiming(d.call, h.device_seconds, 0, d.device_seconds) for d, h in pairs if d and h)
    whole.sort()
    median = statistics.median(whole)
    return StepTiming(
        seconds=median, spread=(whole[len(whole) * 3 // 4] - whole[len(whole) // 4]) / median, recorded_seconds=median,
        events=len(calls), ops=ops, matched=len(ops) / max(len(pairs), 1),
    )  # fmt: skip


@dataclass(frozen=True)
class _Structure:
    """The recorder's events of one step in order of their start, and the ops timed in it by name and event number."""

    raw: tuple[RawEvent, ...]
    names: list[str]
    numbers: list[int]

    def sums(self, seconds: list[float]) -> list[Event]:
        """The events, each with the sum of ``seconds`` (one number per timed op) inside it as its device time."""
        nested = nest(self.raw, dict(zip(self.numbers, seconds, strict=True)))
        return [event for event in nested if event.name != OP_MARK]


def _structure(
    step: Callable[[], object], kind: str, synchronize: Callable[[], None], clock: Clock
) -> _Structure | None:
    with (
        recorder_of([ProfilerActivity.CPU]) as recorder,
        _WaitAfterEachOp(kind, synchronize, clock, mark=True) as mode,
    ):
        step()
    events = map(read_event, raw_events(recorder))
    raw = sorted((event for event in events if event is not None), key=lambda e: (e.start_ns, -e.end_ns))
    numbers = [event.number for event in raw if event.name == OP_MARK]
    names = [call.name for call in mode.calls]
    # The mode notes a call at its end, the recorder orders events by their start. The orders agree for ops in a row,
    # not for an op that runs others through the mode again. Such a step is timed whole only.
    return _Structure(tuple(raw), names, numbers) if len(numbers) == len(names) else None


@dataclass(frozen=True, slots=True)
class _WaitedCall:
    """Seconds until an op was issued, and from there until the device was done (0.0 for what launches nothing)."""

    name: str
    issue: float
    wait: float


class _WaitAfterEachOp(TorchDispatchMode):
    """Waits after every op on a device of ``kind`` that may have launched a kernel; ``calls`` has what each took.

    With ``mark`` each op runs inside a recorder's event called ``OP_MARK``. The mode holds in autograd's threads too.
    """

    def __init__(self, kind: str, synchronize: Callable[[], None], clock: Clock, *, mark: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_WaitedCall] = []
        self._kind = kind
        self._synchronize = synchronize
        self._clock = clock
        self._mark = mark

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # By default the class is wrapped to hide it from the compiler, whose import takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        around: AbstractContextManager[Any] = record_function(OP_MARK) if self._mark else nullcontext()
        kwargs = kwargs or {}
        with around:
            start = self._clock()
            out = func(*args, **kwargs)
            issued = done = self._clock()
            # A view has nothing to wait for, and an op on host tensors (an optimizer's step counter) is no kernel.
            if not func.is_view and any(t.device.type == self._kind for t in tensors((args, kwargs, out))):
                self._synchronize()
                done = self._clock()
        self.calls.append(_WaitedCall(func.name(), issued - start, done - issued))
        return out


def _waited_calls(
    step: Callable[[], object], kind: str, synchronize: Callable[[], None], *, seconds: float, clock: Clock
) -> list[_WaitedCall] | None:
    """The calls of one step, each the median over several steps in about ``seconds``.

    None where the steps did not run the same ops: their calls cannot be paired then.
    """
    passes: list[list[_WaitedCall]] = []
    deadline = clock() + seconds
    while len(passes) < LEAST_PASSES or (len(passes) < MOST_PASSES and clock() < deadline):
        synchronize()
        with _WaitAfterEachOp(kind, synchronize, clock) as mode:
            step()
        passes.append(mode.calls)
    names = [call.name for call in passes[0]]
    if any([call.name for call in calls] != names for calls in passes):
        return None
    return [
        _WaitedCall(seen[0].name, statistics.median(c.issue for c in seen), statistics.median(c.wait for c in seen))
        for seen in zip(*passes, strict=True)
    ]
