"""What a profiler's trace shows in a few numbers: its kernels, who launched them, and the step replayed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from placer.calibration.measuring.events import Assigned, RawEvent, assign
from placer.calibration.published.traces.chrome import ChromeTrace
from placer.calibration.published.traces.replay import Replay, replay
from placer.calibration.published.traces.steps import find_steps, is_backward, is_step, is_update


@dataclass(frozen=True)
class TraceSummary:
    """One trace. Times in seconds, shares of the time of kernels, copies and fills whose launch the trace holds.

    ``assigned``: launched by an op, or by an optimizer's update, which pricing takes for one. ``backward``: launched by
    autograd's nodes. ``before_seconds``: time of kernels that were launched before the trace began and have no op.
    ``lost``: kernels that were launched and are not in the trace. ``replay`` is None where no steps are marked.
    """

    name: str
    gpu: str
    software: str
    steps: int
    kernel_seconds: float
    assigned: float
    backward: float
    before_seconds: float
    lost: int
    replay: Replay | None


def summarise(trace: ChromeTrace) -> TraceSummary:
    """Assign a trace's kernels to its ops, and replay its steps."""
    found = assign(trace.events)
    launched = {call.number for made in found.calls.values() for call in made}
    everything = found.device()
    before = _seconds(event for event in everything if event.number not in launched)
    kernels = _seconds(everything) - before
    steps = find_steps(found)
    moments = [event.start_ns for event in found.host]
    return TraceSummary(
        name=trace.name,
        gpu=trace.gpu,
        software=trace.software,
        steps=len(steps) if steps else 0,
        kernel_seconds=kernels,
        assigned=_seconds(_of(found, [e for e in found.host if e.kind == "op" or is_update(e)])) / max(kernels, 1e-12),
        backward=_seconds(_of(found, backward_ops(found))) / max(kernels, 1e-12),
        before_seconds=before,
        lost=found.launches(min(moments), max(moments) + 1)[1] if moments else 0,
        replay=replay(found, steps) if steps else None,
    )


def backward_ops(found: Assigned) -> list[RawEvent]:
    """The host events of backward: autograd's nodes and what runs inside them, and all that runs on their own thread.

    Between its nodes autograd adds gradients up. On a GPU it has a thread of its own, on which no step is marked.
    """
    ours = {event.thread for event in found.host if is_update(event) or is_step(event)}
    theirs = {event.thread for event in found.host if is_backward(event)} - ours if ours else set()
    until: dict[int, int] = {}
    inside = []
    for event in found.host:
        if is_backward(event):
            until[event.thread] = max(event.end_ns, until.get(event.thread, 0))
        if event.thread in theirs or event.start_ns < until.get(event.thread, 0):
            inside.append(event)
    return inside


def _of(found: Assigned, events: Iterable[RawEvent]) -> Iterable[RawEvent]:
    """The work that these host events launched themselves."""
    for event in events:
        yield from found.work.get(event.number, ())


def _seconds(events: Iterable[RawEvent]) -> float:
    return sum(event.end_ns - event.start_ns for event in events) * 1e-9
