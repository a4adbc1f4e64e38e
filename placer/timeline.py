"""Priced ops -> step time.

On the CPU one clock runs: an op's time in place, plus the framework's own time between ops (Python modules, autograd,
the optimizer loop). On an accelerator two clocks run: the host issues, the device executes behind a bounded queue, and
a step lasts as long as the slower of the two plus what the host waits for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from placer.prediction import PricedTrace
from placer.profile import DeviceFit
from placer.tracing.trace import Trace

#: Kernels a queue holds before the host blocks; CUDA's is about a thousand.
QUEUE_DEPTH = 1000
#: Seconds of an op's own work after which the framework's code has left a core's own caches, and all caches: orders of
#: magnitude are enough. The update's code has waited for a whole step.
NEAR, FAR, SINCE_UPDATE = 50e-6, 2e-3, 5e-3
#: Forward ops of a step from which on the tensors and modules of one, and what the interpreter keeps of the functions
#: around it, have left the nearest caches by the next step.
CROWD = 30


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step and what they are made of; ``components`` add up to ``seconds``."""

    seconds: float
    components: Mapping[str, float]


@dataclass(frozen=True)
class Span:
    """What one clock does for ``seconds`` from ``start`` on: op number ``call``, or (-1) what ``label`` says."""

    lane: Literal["host", "device"]
    label: str
    start: float
    seconds: float
    call: int = -1


def framework_counts(trace: Trace, host_seconds: Sequence[float]) -> dict[str, float]:
    """How often the framework's own code runs in one step; calibration learns what each costs.

    ``host_seconds`` are what each of ``trace.calls`` keeps the host: the longer, the further out its caches have pushed
    the framework's code meanwhile. ``crowded_op`` and ``crowded_call`` count the forward ops and Python functions whose
    data the others displace (in shares), ``displaced_call`` the functions whose code others displace. ``cold_call`` and
    ``cold_node`` count the functions and nodes that have to come back from beyond a core's own caches, ``long_op`` the
    ops that last long enough to empty all of them (in shares), and ``cold_update`` the update after all the ops before.
    """
    phases = [call.phase for call in trace.calls]
    ops = [s for s, phase in zip(host_seconds, phases, strict=True) if phase != "optimizer"]
    updated = float(len(phases) - len(ops))
    forward = float(sum(phase in ("forward", "loss") for phase in phases))
    crowd = min(forward / CROWD, 1.0)
    cold = sum(min(s / NEAR, 1.0) for s in ops) / max(len(ops), 1)
    return {
        "step": 1.0,
        "training_step": float(trace.mode == "train"),
        "forward_op": forward,
        "crowded_op": crowd * forward,
        "backward_op": float(sum(p == "backward" for p in phases)),
        "autograd_node": float(trace.autograd_nodes),
        "python_call": float(trace.python_calls),
        "crowded_call": crowd * trace.python_calls,
        "displaced_call": trace.displaced_calls,
        "updated_tensor": updated,
        "cold_call": cold * trace.python_calls,
        "cold_node": cold * trace.autograd_nodes,
        "long_op": sum(min(s / FAR, 1.0) for s in ops),
        "cold_update": min(sum(ops) / SINCE_UPDATE, 1.0) if updated else 0.0,
    }


def framework_seconds(counts: Mapping[str, float], coefficients: Mapping[str, float]) -> float:
    """The framework's own time in one step: Python between the ops, autograd's engine, the optimizer's loop."""
    return sum(coefficients.get(name, 0.0) * count for name, count in counts.items())


def copy_seconds(sizes: tuple[int, ...], fit: DeviceFit, direction: str, memory: str) -> float:
    """Seconds to copy tensors of ``sizes`` bytes: a cost per tensor and one per byte."""
    prefix = f"copy/{direction}/{memory}"
    per_tensor = fit.rates.get(f"{prefix}/seconds_per_tensor", 0.0)
    bandwidth = fit.rates.get(f"{prefix}/bytes_per_second", 0.0)
    return sum(per_tensor + (size / bandwidth if bandwidth else 0.0) for size in sizes)


def on_cpu(priced: PricedTrace, fit: DeviceFit, *, spans: list[Span] | None = None) -> StepTime:
    """One clock: ops and framework add up. ``spans`` is filled with the ops, the framework's time evenly between."""
    compute = sum(priced.seconds)
    dispatch = framework_seconds(priced.counts, fit.framework)
    if compute + dispatch <= 0.0:  # nothing but views, or nothing at all: it has to be called all the same
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
    """Two clocks, run for several steps so that a full queue shows; the last step counts.

    ``compute`` is the device's busy time, ``dispatch`` the time the device idles because the host is late, ``copy`` and
    ``sync`` what the host waits for with nothing else going on. ``spans`` is filled with what both clocks do in it.
    """
    trace = priced.trace
    launch = fit.rates.get("launch_seconds", 0.0)
    sync = fit.rates.get("sync_seconds", 0.0)
    pinned = data == "pinned"
    copy_in = copy_issue = 0.0
    if data != "device":
        sizes = tuple(t.stored_bytes for t in trace.batch)
        copy_in = copy_seconds(sizes, fit, "h2d", "pinned" if pinned else "pageable")
        copy_issue = len(sizes) * fit.rates.get("issue_seconds", 0.0)
    copy_out = 0.0
    if trace.mode == "infer":
        copy_out = copy_seconds(tuple(t.stored_bytes for t in trace.outputs), fit, "d2h", "pageable")
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
        if trace.syncs or copy_out:  # a copy out was timed with the wait that belongs to it
            waited = max(host, device)
            host = device = waited + trace.syncs * sync + copy_out
            done.append(Span("host", "copy out" if copy_out else "sync", waited, host - waited))
        marks.append(max(host, device))
    if spans is not None:
        origin = min((span.start for span in done), default=0.0)
        spans.extend(replace(span, start=span.start - origin) for span in done)
    step = marks[-1] - marks[-2]
    waiting = {"copy": copy_in + copy_out, "sync": sync * trace.syncs}
    compute = min(busy, step)
    rest = step - compute
    copy = min(waiting["copy"], rest)
    exposed_sync = min(waiting["sync"], rest - copy)
    components = {"compute": busy, "dispatch": rest - copy - exposed_sync, "copy": copy, "sync": exposed_sync}
    if busy > step:  # cannot happen on one queue; kept exact so that components always add up
        components["dispatch"] -= busy - step
    return StepTime(step, components)
