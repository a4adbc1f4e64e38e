"""Finds the event of every op call of a trace: both are walked in order.

So a sample carries exactly the features that pricing will see.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from placer.calibration.measuring.recording import Event
from placer.pricing import parameter_updates
from placer.tracing import OpCall, Trace

#: Events without a match that may be passed over in search of the next op call.
LOOK_AHEAD = 200
#: What the events of autograd's nodes are called, up to the node's own name.
BACKWARD_NODE = "autograd::engine::evaluate_function"
#: What ops are traced as that run by another name: gradients of ``x[index]`` check no index a second time, and on GPUs
#: the batch norms are a library's.
_PLAIN = {
    "aten::_index_put_impl_": "aten::index_put",
    **{
        f"aten::{library}_batch_norm{gradient}": f"aten::native_batch_norm{gradient}"
        for library in ("cudnn", "miopen")
        for gradient in ("", "_backward")
    },
}
#: What recording an event costs, in costs of the average one: of events nested in an op, of all others (ops carry their
#: inputs' sequence, autograd's nodes put their names together first), and what of an op's own lands between its ends.
NESTED_COST, OUTER_COST, OWN_SHARE = 0.75, 1.28, 0.2
#: Least share of an op's recorded time that is its own, however many events it holds.
LEAST_SHARE = 0.25


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


def match(trace: Trace, events: Sequence[Event]) -> list[OpTiming | None]:
    """Pairs each op call with its event, walking both in order; None where the device ran something else."""
    result: list[OpTiming | None] = []
    cursor, horizon = 0, -1.0
    names = {_traced_name(event) for event in events}
    wholes: dict[str, list[tuple[OpCall, Event]]] = defaultdict(list)
    updates = [e for e in events if e.name.startswith("Optimizer.step#")]
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
    """Whether an event is one of ``op``: gradients are written in place where nobody else looks on."""
    return _traced_name(event).rstrip("_") == op.rstrip("_")


def _traced_name(event: Event) -> str:
    return _PLAIN.get(event.name, event.name)


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
