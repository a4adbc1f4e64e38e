"""Priced ops -> step time.

The CPU has one clock: the time of the ops, plus the framework's own time between them (Python modules, autograd, the
optimizer's loop). An accelerator has two: the host issues ops, and the device executes them behind a bounded queue. Its
step lasts as long as the slower of the two, plus the time that the host waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from placer.pricing.framework import framework_seconds
from placer.pricing.prediction import PricedTrace
from placer.profile import DeviceFit
from placer.tracing import Trace

#: Kernels that a queue holds before the host blocks; about a thousand in CUDA.
QUEUE_DEPTH = 1000


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step, and the ``components`` that add up to them."""

    seconds: float
    components: Mapping[str, float]


@dataclass(frozen=True)
class Span:
    """What one clock does for ``seconds`` from ``start`` on: op number ``call``, or where that is -1, ``label``."""

    lane: Literal["host", "device"]
    label: str
    start: float
    seconds: float
    call: int = -1


def copy_seconds(sizes: tuple[int, ...], fit: DeviceFit, direction: str, memory: str) -> float:
    """Seconds to copy tensors of ``sizes`` bytes: a cost per tensor plus a cost per byte."""
    prefix = f"copy/{direction}/{memory}"
    per_tensor = fit.rates.get(f"{prefix}/seconds_per_tensor", 0.0)
    bandwidth = fit.rates.get(f"{prefix}/bytes_per_second", 0.0)
    return sum(per_tensor + (size / bandwidth if bandwidth else 0.0) for size in sizes)


def on_cpu(priced: PricedTrace, fit: DeviceFit, *, spans: list[Span] | None = None) -> StepTime:
    """One clock: ops and framework add up. ``spans`` gets the ops, with the framework's time evenly between them."""
    compute = sum(priced.seconds)
    dispatch = framework_seconds(priced.counts, fit.framework)
    if compute + dispatch <= 0.0:  # nothing but views, or nothing at all: calling it takes time all the same
        dispatch = fit.rates.get("dispatch_seconds", 0.0)
    if spans is not None:
        gap, now = dispatch / max(len(priced.seconds), 1), 0.0
        for call, seconds in enumerate(priced.seconds):
            spans.append(Span("host", "", now + gap, seconds, call))
            now += gap + seconds
    return StepTime(compute + dispatch, {"compute": compute, "dispatch": dispatch})


def on_accelerator(
    priced: PricedTrace, fit: DeviceFit, *, data: str, spans: list[Span] | None = None
) -> StepTime:
    """Two clocks, run for several steps so that a full queue takes effect; the last step counts.

    ``compute`` is the device's busy time, ``dispatch`` the time that the device idles because the host is late,
    ``copy`` and ``sync`` the time that the host waits while nothing else runs. ``spans`` gets what both clocks do.
    """
    trace = priced.trace
    launch = fit.rates.get("launch_seconds", 0.0)
    sync = fit.rates.get("sync_seconds", 0.0)
    pinned = data == "pinned"
    copy_in, copy_issue, copy_out = _copies(trace, fit, data)
    spread = framework_seconds(priced.counts, fit.framework) / max(len(trace.calls), 1)
    busy = sum(priced.seconds)

    host = device = 0.0
    finished: list[float] = []
    marks: list[float] = []
    done: list[Span] = []
    for _ in range(3):
        done = []
        if copy_in and pinned:  # queued like a kernel: the host goes on
            host += copy_issue
            device = max(device, host + launch) + copy_in
            finished.append(device)
            done.append(Span("device", "copy in", device - copy_in, copy_in))
        elif copy_in:
            host = max(host, device) + copy_in
            done.append(Span("host", "copy in", host - copy_in, copy_in))
        for call, (seconds, issue) in enumerate(zip(priced.seconds, priced.host_seconds, strict=True)):
            if len(finished) >= QUEUE_DEPTH:
                host = max(host, finished[-QUEUE_DEPTH])
            host += issue + spread
            if seconds > 0.0:
                device = max(device, host + launch) + seconds
                finished.append(device)
            if spans is not None:
                done.append(Span("host", "", host - issue - spread, issue + spread, call))
                if seconds > 0.0:
                    done.append(Span("device", "", device - seconds, seconds, call))
        if not trace.calls:
            host += spread or fit.rates.get("dispatch_seconds", 0.0)
        if trace.syncs or copy_out:  # the time of a copy out includes the wait for it
            waited = max(host, device)
            host = device = waited + trace.syncs * sync + copy_out
            done.append(Span("host", "copy out" if copy_out else "sync", waited, host - waited))
        marks.append(max(host, device))
    if spans is not None:
        origin = min((span.start for span in done), default=0.0)
        spans.extend(replace(span, start=span.start - origin) for span in done)
    step = marks[-1] - marks[-2]
    return StepTime(step, _components(step, busy=busy, copy=copy_in + copy_out, sync=sync * trace.syncs))


def _copies(trace: Trace, fit: DeviceFit, data: str) -> tuple[float, float, float]:
    """Seconds to copy the batch in, to issue that copy if it is queued, and to copy an inference's outputs out."""
    copy_in = copy_issue = copy_out = 0.0
    if data != "device":
        sizes = tuple(t.stored_bytes for t in trace.batch)
        copy_in = copy_seconds(sizes, fit, "h2d", "pinned" if data == "pinned" else "pageable")
        copy_issue = len(sizes) * fit.rates.get("issue_seconds", 0.0)
    if trace.mode == "infer":
        copy_out = copy_seconds(tuple(t.stored_bytes for t in trace.outputs), fit, "d2h", "pageable")
    return copy_in, copy_issue, copy_out


def _components(step: float, *, busy: float, copy: float, sync: float) -> dict[str, float]:
    """The parts of a step's seconds, given the device's busy time and what copies and syncs take at the most."""
    rest = step - min(busy, step)
    exposed_copy = min(copy, rest)
    exposed_sync = min(sync, rest - exposed_copy)
    dispatch = rest - exposed_copy - exposed_sync
    if busy > step:  # cannot happen on one queue; kept exact so that components always add up
        dispatch -= busy - step
    return {"compute": busy, "dispatch": dispatch, "copy": exposed_copy, "sync": exposed_sync}
