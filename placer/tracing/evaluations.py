"""LBFGS: an optimizer whose step evaluates the model several times, how often depends on the values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from placer.tracing import layout
from placer.tracing.trace_data import MemoryEvent, OpCall, Trace

#: ``Trace`` fields that count something of forward, loss and backward.
_COUNTS = ("module_calls", "python_calls", "evicted_calls", "autograd_nodes", "syncs")


def repeated(trace: Trace, settings: Mapping[str, Any]) -> Trace:
    """The trace of a step that evaluates once, with as many evaluations as ``settings`` of LBFGS let it make.

    Without a line search that is one for each of ``max_iter`` iterations, with one up to ``max_eval``. Between them it
    finds a direction by the two loops over its history (Nocedal and Wright, "Numerical optimization", algorithm 7.4).
    A step that converges ends earlier, after one evaluation at the least.
    """
    iterations = int(settings.get("max_iter") or 20)
    most = int(settings.get("max_eval") or iterations * 5 // 4)
    usual = min(most if settings.get("line_search_fn") else iterations, most)
    body = [call for call in trace.calls if call.phase != "optimizer"]
    weights = sum(call.inputs[0].numel for call in trace.calls[len(body) :] if call.inputs)
    dtype = trace.parameters[0].dtype if trace.parameters else "float32"
    direction = list(_direction(weights, dtype, int(settings.get("history_size") or 100)))
    each = len(body) + len(direction)
    return dataclasses.replace(
        trace,
        calls=tuple((body + direction) * usual),
        memory=tuple(_memory(trace, len(body), each, usual)),
        evaluations=(1, usual, most),
        notes=(*trace.notes, f"LBFGS evaluates the model up to {most} times; priced are {usual}"),
        **{name: getattr(trace, name) * usual for name in _COUNTS},
    )


def _direction(weights: int, dtype: str, history: int) -> Iterator[OpCall]:
    """The vector ops of one iteration: a gradient gathered, two loops over the history, a step taken."""
    vector, scalar = layout.dense((weights,), dtype), layout.dense((), dtype)

    def call(op: str, *inputs: Any, in_place: bool = False, syncs: int = 0) -> OpCall:
        output = scalar if op == "aten::dot" else inputs[0]
        return OpCall(op, inputs, (output,), phase="optimizer", in_place=in_place, syncs=syncs)

    yield call("aten::neg", vector)
    for _ in range(2 * history):
        yield call("aten::dot", vector, vector)
        yield call("aten::mul", scalar, scalar)
        yield call("aten::add_", vector, vector, in_place=True, syncs=1)  # a factor that the host has to know
    for _ in range(2):
        yield call("aten::dot", vector, vector)
        yield call("aten::mul", vector, scalar)
        yield call("aten::add_", vector, vector, in_place=True)


def _memory(trace: Trace, calls: int, each: int, times: int) -> Iterator[MemoryEvent]:
    """The memory events of one evaluation, again and again; what it leaves is freed when the next one begins."""
    events = [event for event in trace.memory if event.call < calls]
    buffers = 1 + max((event.buffer for event in events), default=0)
    left = {event.buffer for event in events if event.nbytes} - {event.buffer for event in events if not event.nbytes}
    for number in range(times):
        for event in events:
            yield MemoryEvent(event.call + number * each, event.buffer + number * buffers, event.nbytes)
        if number < times - 1:
            for buffer in sorted(left):
                yield MemoryEvent((number + 1) * each, buffer + number * buffers, 0)
