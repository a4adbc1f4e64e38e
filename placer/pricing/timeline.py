"""Priced ops -> step time.

The CPU has one clock: the time of the ops, plus the framework's own time between them (Python modules, autograd, the
optimizer's loop). An accelerator has two: the host issues ops, and the device executes them in that order. Its step
lasts as long as the slower of the two, plus the time that the host waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from placer.pricing.contention import waiting_seconds
from placer.pricing.copies import copy_seconds
from placer.pricing.framework import framework_seconds
from placer.pricing.ops import row_of
from placer.pricing.prediction import PricedTrace
from placer.pricing.shapes import FUSED, Recurrent, Update
from placer.pricing.work import Work, kernel_of, op_of
from placer.profile import Device
from placer.tracing import CHECKS, COUNTS, READS
from placer.workload import Loading, outputs_stay


class ScheduleItem(NamedTuple):
    """What the host does next. Times in seconds.

    It takes ``issue`` to issue ``kernels`` kernels, evenly spread over it, which the device executes in ``device``.
    Where it ``waits``, it waits next until the device is done. ``alone`` is what host and device take after that, with
    nothing else going on: a wait's return, a copy that blocks the host.
    """

    issue: float = 0.0
    device: float = 0.0
    kernels: float = 1.0
    waits: bool = False
    alone: float = 0.0


@dataclass
class Clocks:
    """Both clocks, in seconds. The device executes kernels in the order in which the host issues them."""

    host: float = 0.0
    device: float = 0.0

    def play(self, item: ScheduleItem) -> tuple[float, float]:
        """Advance both clocks by an item. Returns when its first kernel starts and when its last one ends."""
        start = max(self.host + item.issue / item.kernels, self.device)
        self.host += item.issue
        end = start
        if item.device > 0.0:
            # The last kernel starts once it is issued, or once those before it have ended.
            end = self.device = max(start + item.device, self.host + item.device / item.kernels)
        if item.waits:
            self.host = self.device = max(self.host, self.device) + item.alone
        else:
            self.host += item.alone
        return start, end


#: Names under which a fit stores the seconds to issue a call, to issue an update besides the calls in it, and to issue
#: each kernel of a recurrent op, or each time step of one that runs op by op. ``/`` and an op or a family may follow.
HOST, HOST_UPDATE, HOST_KERNEL, HOST_TIME_STEP = "host", "host_update", "host_kernel", "host_time_step"
#: The same of the number of kernels that an op runs in; ``/`` and an op follow.
KERNELS = "kernels"


def host_seconds(work: Work, framework: Mapping[str, float]) -> float:
    """Seconds to issue one call: those known of the op, else of its family, else of any op, else 0.0.

    An update is issued for all tensors at once: each call takes its own time and its share of the whole update's. A
    recurrent op is as many kernels as it has time steps, or a few.
    """
    each, shape = _of(work, HOST, framework, framework.get(HOST, 0.0)), work.shape
    if isinstance(shape, Recurrent):
        kernels = shape.launches(work) * framework.get(f"{HOST_KERNEL}/{work.op}", 0.0)
        return each + kernels + shape.steps * framework.get(f"{HOST_TIME_STEP}/{work.op}", 0.0)
    if not isinstance(shape, Update):
        return each
    if work.updated_alone:
        return shape.launches(work) * framework.get(f"{HOST}/elementwise", framework.get(HOST, 0.0))
    return each + _of(work, HOST_UPDATE, framework, 0.0) / shape.tensors


def kernels_of(work: Work, framework: Mapping[str, float]) -> float:
    """Kernels that one call runs in; 1.0 where it is not known. A tensor's share of an update may be less than one."""
    if f"{HOST_KERNEL}/{work.op}" in framework:
        return work.shape.launches(work)
    return framework.get(f"{KERNELS}/{issued_as(work)}", 1.0)


def pause_seconds(kernels: float, fit: Device) -> float:
    """Seconds between kernels that follow each other on the device, which no kernel's own time holds."""
    return kernels * fit.rates.get("kernel_gap_seconds", 0.0)


def waits_for_device(kernel: str) -> bool:
    """Whether the host waits in an op for a value, a number of rows or a check. A trace counts these waits.

    An index by a mask is one: its rows are counted first. ``kernel`` is an op's name, or that of its kernel.
    """
    name = op_of(kernel)
    if name in READS or name.removeprefix("aten::") in COUNTS | CHECKS:
        return True
    return kernel.endswith(".mask") and "index" in name


def issued_as(work: Work) -> str:
    """The name that the host's times of an op are kept under: a fused update is another call than a usual one."""
    return f"{work.op}{FUSED}" if isinstance(work.shape, Update) and work.shape.fused else work.op


def _of(work: Work, what: str, framework: Mapping[str, float], otherwise: float) -> float:
    return framework.get(f"{what}/{issued_as(work)}", framework.get(f"{what}/{work.family}", otherwise))


#: What the host does next: a label, the number of the call or -1, and the item.
Entry: TypeAlias = tuple[str, int, ScheduleItem]


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


def on_cpu(
    priced: PricedTrace, fit: Device, *, loading: Loading | None = None, spans: list[Span] | None = None
) -> StepTime:
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
    components = {"compute": compute, "dispatch": dispatch}
    others = waiting_seconds(compute + dispatch, fit.rates)
    if others > 0.0:
        components["others"] = others
    step = total = compute + dispatch + others
    if loading is not None:
        total = max(step, loading.seconds) if loading.overlapped else step + loading.seconds
        components["loading"] = total - step
    return StepTime(total, components)


def on_accelerator(
    priced: PricedTrace,
    fit: Device,
    *,
    data: str,
    outputs: str | None = None,
    loading: Loading | None = None,
    spans: list[Span] | None = None,
) -> StepTime:
    """Two clocks, for two steps that follow each other: the host issues the second while the device is still busy.

    ``compute`` is the device's busy time, ``dispatch`` the time that the device idles because the host is late,
    ``copy`` and ``sync`` the time that the host waits while nothing else runs, ``loading`` what the step takes longer
    because the host loads a batch. ``spans`` gets what both clocks do.
    """
    schedule, copy = accelerator_schedule(priced, fit, data=data, outputs=outputs)
    step = total = played(schedule, spans)
    busy = sum(priced.seconds)
    copy = min(copy, max(step - busy, 0.0))
    waits = priced.trace.syncs + sum(waits_inside(priced))
    sync = min(fit.rates.get("sync_seconds", 0.0) * waits, max(step - busy, 0.0) - copy)
    components = {"compute": busy, "dispatch": step - busy - copy - sync, "copy": copy, "sync": sync}
    if loading is not None:
        loads: Entry = ("loading", -1, ScheduleItem(alone=loading.seconds))
        total = max(step, loading.seconds) if loading.overlapped else played([loads, *schedule])
        components["loading"] = total - step
    return StepTime(total, components)


def played(schedule: Sequence[Entry], spans: list[Span] | None = None) -> float:
    """Seconds of the second of two steps; ``spans`` gets what both clocks do in the first."""
    clocks = Clocks()
    first = _advance(clocks, schedule, spans)
    return _advance(clocks, schedule) - first


def _advance(clocks: Clocks, schedule: Sequence[Entry], spans: list[Span] | None = None) -> float:
    """When both clocks have done all of a schedule."""
    for label, call, item in schedule:
        issued = clocks.host
        start, end = clocks.play(item)
        if spans is None:
            continue
        if call >= 0:
            spans.append(Span("host", "", issued, item.issue, call))
        if item.device > 0.0:
            spans.append(Span("device", label, start, end - start, call))
        elif label:
            spans.append(Span("host", label, clocks.host - item.alone, item.alone))
        if call >= 0 and item.waits:
            spans.append(Span("host", "sync", clocks.host - item.alone, item.alone))
    return max(clocks.host, clocks.device)


def accelerator_schedule(
    priced: PricedTrace, fit: Device, *, data: str, outputs: str | None = None
) -> tuple[list[Entry], float]:
    """What the host does in a step on an accelerator, and the seconds that copies of batch and outputs take of it."""
    trace, rates = priced.trace, fit.rates
    sync = rates.get("sync_seconds", 0.0)
    spread = framework_seconds(priced.counts, fit.framework) / max(len(trace.calls), 1)
    schedule: list[Entry] = []
    inward = outward = 0.0
    if data != "device":
        memory = "pinned" if data == "pinned" else "pageable"
        inward = copy_seconds(tuple(t.stored_bytes for t in trace.batch), rates, "h2d", memory)
    if trace.mode == "infer" and not outputs_stay(data, outputs):
        outward = copy_seconds(tuple(t.stored_bytes for t in trace.outputs), rates, "d2h", "pageable")
    if inward and data == "pinned":  # queued like a kernel: the host goes on
        issue = len(trace.batch) * rates.get("issue_seconds", 0.0)
        schedule.append(("copy in", -1, ScheduleItem(issue, inward)))
    elif inward:
        schedule.append(("copy in", -1, ScheduleItem(waits=True, alone=inward)))
    kernels = priced.kernels or (1.0,) * len(trace.calls)
    left = trace.syncs
    rows = zip(trace.calls, priced.host_seconds, priced.seconds, kernels, waits_inside(priced), strict=True)
    for number, (call, issue, seconds, run, unseen) in enumerate(rows):
        waits: float = min(call.syncs, left)
        left -= int(waits)
        inside = bool(waits) and waits_for_device(kernel_of(call, row_of(call.op)))
        if unseen:
            inside, waits = True, waits + unseen
        if waits and not inside:  # ``.cpu()`` before the call
            schedule.append(("sync", -1, ScheduleItem(waits=True, alone=waits * sync)))
        item = ScheduleItem(issue + spread, seconds, max(run, 1.0), inside, waits * sync if inside else 0.0)
        schedule.append(("", number, item))
    if not trace.calls:
        schedule.append(("", -1, ScheduleItem(spread or rates.get("dispatch_seconds", 0.0))))
    if left or outward:  # the time of a copy out includes the wait for it
        label = "copy out" if outward else "sync"
        schedule.append((label, -1, ScheduleItem(waits=True, alone=left * sync + outward)))
    return schedule, inward + outward


def waits_inside(priced: PricedTrace) -> tuple[float, ...]:
    """Waits for the device inside each call that a trace does not see, as in a factorisation; by the table of ops."""
    if not priced.works:
        return (0.0,) * len(priced.trace.calls)
    return tuple(
        work.effort.waits if work.effort is not None and not call.syncs and work.family != "view" else 0.0
        for call, work in zip(priced.trace.calls, priced.works, strict=True)
    )
