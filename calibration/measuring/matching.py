"""Finds the recorded event of every op call of a trace, by walking both in order.

So a sample carries exactly the features that pricing will see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from placer.calibration.measuring.events import Event
from placer.calibration.measuring.step_timing import OpTiming
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
