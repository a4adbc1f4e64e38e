"""Times ops in place: inside a real step, by the framework's own event recorder.

Inside a step an op costs 0.5 to 3 times its time in a hot loop: caches are cold, memory is fresh, autograd records. So
every op sample is taken in place. The step is timed without the recorder too; the difference, divided by the number of
events, is what recording added to each, and is taken off again.

Contention that comes and goes within milliseconds lengthens one op in one repetition and another op in the next: the
middle repetitions of all ops add up to less than the middle step. So the timing says how much longer that one takes.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from placer.calibration.measuring.events import Event, nest
from placer.calibration.measuring.recording import LEAST_RECORDED, LONG_STEP, in_turns, record
from placer.calibration.measuring.step_timing import OpTiming, StepTiming
from placer.calibration.measuring.timing import Clock, Phases, Timer, spread_of
from placer.nest import tensors
from placer.pricing import is_update
from placer.tracing import OpCall, Trace

#: Events without a match that may be passed over in search of the next op call.
LOOK_AHEAD = 200
#: How the names of the events of autograd's nodes begin, and that of the range around an optimizer's step.
BACKWARD_NODE, UPDATE_RANGE = "autograd::engine::evaluate_function", "Optimizer.step#"
#: Traced name by recorded name, where an op runs under another one: gradients of ``x[index]`` check no index a second
#: time, and on GPUs the batch norms are a library's.
_PLAIN = {
    "aten::_index_put_impl_": "aten::index_put",
    "aten::cudnn_batch_norm": "aten::native_batch_norm", "aten::miopen_batch_norm": "aten::native_batch_norm",
    "aten::cudnn_batch_norm_backward": "aten::native_batch_norm_backward",
    "aten::miopen_batch_norm_backward": "aten::native_batch_norm_backward",
}  # fmt: skip


def match(trace: Trace, events: Sequence[Event]) -> list[OpTiming | None]:
    """Pair each op call with its event; None where the device ran something else."""
    result: list[OpTiming | None] = []
    cursor, horizon = 0, -1.0
    # Gradients are written in place where nothing else uses the tensor: that is the same op.
    names = [_PLAIN.get(event.name, event.name).rstrip("_") for event in events]
    recorded = set(names)
    wholes: dict[str, list[tuple[OpCall, Event]]] = defaultdict(list)
    calls = trace.calls
    updates = [event for event in events if event.name.startswith(UPDATE_RANGE)]
    updated = sum(map(is_update, calls))
    for position, call in enumerate(calls):
        name = call.op.rstrip("_")
        if is_update(call):
            # An equal share of the whole update: exact only where all tensors are equal, as in probes of optimizers.
            result.append(_timing(call, updates[0], updated) if updates else None)
            continue
        if name not in recorded and wholes.get(call.op):
            result.append(_backward_of(call, _forward_of(call, wholes[call.op]), events))
            continue
        found = _find(events, names, name, cursor, horizon)
        following = calls[position + 1].op.rstrip("_") if position + 1 < len(calls) else None
        if found is None or any(
            names[i] == following and horizon <= events[i].start and events[i].end < events[found].start
            for i in range(cursor, found)
        ):
            # The device left this op out. Matching it with a later event of its name would lose all events between.
            result.append(None)
            continue
        event = events[found]
        cursor, horizon = found + 1, event.end
        result.append(_timing(call, event))
        if event.inside and call.phase == "forward":
            wholes[f"{call.op}_backward"].append((call, event))
    return result


def _timing(call: OpCall, event: Event, parts: int = 1) -> OpTiming:
    """One of ``parts`` equal parts of an event."""
    return OpTiming(
        call,
        (event.end - event.start) / parts,
        round(event.inside / parts),
        event.device_seconds / parts,
        event.kernels / parts,
    )


def _find(events: Sequence[Event], names: Sequence[str], name: str, cursor: int, horizon: float) -> int | None:
    """The first event of this name from ``cursor`` on that begins after ``horizon``."""
    passed = 0
    for i in range(cursor, len(events)):
        if events[i].start < horizon:
            continue
        if names[i] == name:
            return i
        passed += 1
        if passed > LOOK_AHEAD:
            break
    return None


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
    """The backward of an op traced as a whole: all graph nodes that its forward recorded, found by sequence number.

    It takes from the first node's start to the last one's end, with the engine's time between them, without what else
    ran in between (gradients of another branch).
    """
    recorded = {e.sequence for e in events if e.start >= forward.start and e.end <= forward.end and e.sequence >= 0}
    nodes = [
        e for e in events if e.sequence in recorded and e.start >= forward.end and e.name.startswith(BACKWARD_NODE)
    ]
    if not nodes:
        return None
    start, end = nodes[0].start, max(e.end for e in nodes)
    own = {id(e) for e in nodes}
    others, horizon = 0.0, start
    for event in events:
        if event.start < horizon or event.start >= end:
            continue
        horizon = event.end
        if id(event) not in own:
            others += event.end - event.start
    device, kernels = sum(e.device_seconds for e in nodes), sum(e.kernels for e in nodes)
    return OpTiming(call, end - start - others, sum(e.inside + 1 for e in nodes), device, kernels)


#: Undisturbed and recorded steps at most: reading the events of a recorded step costs more than the step.
MOST_ROUNDS, MOST_RECORDED = 20, 6


def time_step(
    step: Callable[[], object],
    trace: Trace,
    *,
    synchronize: Callable[[], None] | None = None,
    seconds: float = 0.1,
    clock: Clock = time.perf_counter,
) -> StepTiming:
    """Time ``step`` (already warm) whole and op by op, within about ``seconds`` (at least two steps of each).

    Repetitions are few: another shape teaches more than another repetition of this one.
    """
    timer = Timer(step, synchronize, clock)
    once = timer.seconds()
    rounds = int(min(max(seconds / 2 / max(once, 1e-6), 2), MOST_ROUNDS))
    recorded_rounds = MOST_RECORDED if once < LONG_STEP else LEAST_RECORDED
    around, recorded = in_turns(timer, rounds + 1, recorded_rounds, rounds // 2, once=once)
    whole = sorted(run.seconds for run in around)
    median = statistics.median(whole)
    matched = [match(trace, run.events) for run in recorded]
    timings = [_middle_of(repetitions) for repetitions in zip(*matched, strict=True)]
    found = [t for t in timings if t is not None]
    recorded_seconds = statistics.median(run.seconds for run in recorded)
    between = statistics.median(run.seconds - _total(ops) for run, ops in zip(recorded, matched, strict=True))
    middles = _total(found) + between
    return StepTiming(
        seconds=median,
        spread=spread_of(whole),
        recorded_seconds=recorded_seconds,
        lengthened=recorded_seconds / middles if middles > 0.0 else 1.0,  # a coarse clock shows no middles
        events=round(statistics.median(len(run.events) for run in recorded)),
        ops=tuple(found),
        matched=len(found) / max(len(timings), 1),
        phases=_typical([run.phases for run in around if run.phases is not None], median),
    )


def _middle_of(repetitions: Sequence[OpTiming | None]) -> OpTiming | None:
    """The middle one of an op's repetitions; None without any."""
    found = sorted((t for t in repetitions if t is not None), key=attrgetter("host_seconds"))
    if not found:
        return None
    chosen = found[(len(found) - 1) // 2]
    device = statistics.median(t.device_seconds for t in found)
    return OpTiming(chosen.call, chosen.host_seconds, chosen.inside, device, chosen.kernels)


def _total(ops: Sequence[OpTiming | None]) -> float:
    return sum(op.host_seconds for op in ops if op is not None)


def _typical(seen: Sequence[Phases], seconds: float) -> Phases | None:
    """The median phases, scaled to a step of ``seconds``; None where none were seen."""
    if not seen:
        return None
    middle = {}
    for name in seen[0]:
        middle[name] = statistics.median(phases[name] for phases in seen)
    return {name: value * seconds / max(sum(middle.values()), 1e-9) for name, value in middle.items()}


#: Undisturbed steps on either side of the waited ones.
LEAST_WHOLE, MOST_WHOLE = 3, 20
#: Waited steps: more do not improve the median, fewer cannot outvote a disturbed one.
LEAST_PASSES, MOST_PASSES = 3, 7
#: Name of the recorded event around a timed op.
OP_MARK = "placer::op"


def time_step_waiting(
    step: Callable[[], object],
    trace: Trace,
    *,
    device: str,
    synchronize: Callable[[], None],
    overhead: float,
    seconds: float,
    clock: Clock,
) -> StepTiming | None:
    """Time ``step`` (already warm) whole and op by op, within about ``seconds``, for a device of unseen kernels.

    In some passes the device is waited for after every op. A last one, under the recorder, says how the ops lie in each
    other. ``overhead``: seconds from an op's issue to the end of the wait for it, its kernels not counted. None where
    steps do not repeat the same ops: their calls cannot be paired then.
    """
    timer = Timer(step, synchronize, clock)
    timer.wait()
    whole = [timer.seconds()]
    rounds = int(min(max(seconds / 4 / max(whole[0], 1e-6), LEAST_WHOLE), MOST_WHOLE))
    whole += [timer.seconds() for _ in range(rounds)]
    passes: list[_WaitAfterEachOp] = []
    deadline = clock() + seconds / 2
    while len(passes) < LEAST_PASSES or (len(passes) < MOST_PASSES and clock() < deadline):
        synchronize()
        with _WaitAfterEachOp(device, synchronize, clock) as one:
            step()
        passes.append(one)
    marked = _WaitAfterEachOp(device, synchronize, clock)

    def run_marked() -> float:
        with marked:
            return timer.seconds()

    events = record(run_marked, 1)[0].host_events
    # A mode notes a call at its end, the recorder orders events by their start. The orders agree for ops in a row, not
    # for an op that runs others through the mode again: its step cannot be paired.
    numbers = [event.number for event in events if event.name == OP_MARK]
    if any(one.names != marked.names for one in passes) or len(numbers) != len(marked.names):
        return None
    whole += [timer.seconds() for _ in range(rounds)]
    waited = _middles([one.waits for one in passes])
    waits = [max(middle - overhead, 0.0) for middle in waited]
    issues = _middles([one.issues for one in passes])

    def matched(seconds: Sequence[float]) -> list[OpTiming | None]:
        """The ops, with the sums of ``seconds`` (one number per timed op) inside them as their device time."""
        nested = nest(events, dict(zip(numbers, seconds, strict=True)))
        return match(trace, [event for event in nested if event.name != OP_MARK])

    pairs = list(zip(matched(waits), matched(issues), strict=True))
    ops = tuple(OpTiming(d.call, h.device_seconds, 0, d.device_seconds) for d, h in pairs if d and h)
    whole.sort()
    median = statistics.median(whole)
    return StepTiming(
        seconds=median,
        spread=spread_of(whole),
        recorded_seconds=median,
        events=len(numbers),
        ops=ops,
        matched=len(ops) / max(len(pairs), 1),
    )


def _middles(passes: Sequence[Sequence[float]]) -> list[float]:
    """Of each op the median of what it took in the passes."""
    return [statistics.median(times) for times in zip(*passes, strict=True)]


class _WaitAfterEachOp(TorchDispatchMode):
    """Waits after every op that may have launched a kernel on ``device``. It holds in autograd's threads too.

    ``issues`` and ``waits``: seconds until each op was issued, and from there until the device was done (0.0 for what
    launches nothing).
    """

    def __init__(self, device: str, synchronize: Callable[[], None], clock: Clock) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.issues: list[float] = []
        self.waits: list[float] = []
        self._kind, self._synchronize, self._clock = torch.device(device).type, synchronize, clock

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # By default the class is wrapped to hide it from the compiler, whose import takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with record_function(OP_MARK):
            start = self._clock()
            out = func(*args, **kwargs)
            issued = done = self._clock()
            # A view has nothing to wait for, and an op on host tensors (an optimizer's step counter) is no kernel.
            if not func.is_view and any(t.device.type == self._kind for t in tensors((args, kwargs, out))):
                self._synchronize()
                done = self._clock()
        self.names.append(func.name())
        self.issues.append(issued - start)
        self.waits.append(done - issued)
        return out
