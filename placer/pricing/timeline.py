"""Priced ops -> step time: clocks of host and device, copies between them, and waits for other programs.

The CPU has one clock: the time of the ops, plus the framework's own time between them (Python modules, autograd, the
optimizer's loop). An accelerator has two: the host issues ops, and the device executes them in that order. Its step
lasts as long as the slower of the two, plus the time that the host waits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from placer.pricing.framework import framework_seconds
from placer.pricing.ops import row_of
from placer.pricing.prediction import PricedTrace
from placer.pricing.work import kernel_of, op_of
from placer.profile import Device
from placer.tracing import CHECKS, COUNTS, READS
from placer.workload import Loading, outputs_stay

#: Name of the factor among a device's rates.
LONG_STEPS = "long_steps"
#: Seconds of a step up to which hardly any median shows other programs, and from which on it shows all of them. Linux
#: gives turns of 0.7 ms times one plus the binary logarithm of the number of cores, eight at most
#: (``base_slice_ns`` of kernel/sched/fair.c): 1.4 ms on two cores.
ONE_TURN, MANY_TURNS = 0.4e-3, 2.0e-3


def long_share(seconds: float) -> float:
    """Of the logarithm of that factor, the share that a step of ``seconds`` on a quiet machine shows: from 0 to 1."""
    return min(max(math.log(max(seconds, ONE_TURN) / ONE_TURN) / math.log(MANY_TURNS / ONE_TURN), 0.0), 1.0)


def waiting_seconds(seconds: float, rates: Mapping[str, float]) -> float:
    """Seconds that a step of ``seconds`` waits for other programs, as far as a calibration with these rates saw."""
    factor = max(rates.get(LONG_STEPS, 1.0), 1.0)
    return seconds * math.expm1(math.log(factor) * long_share(seconds))


def waiting_doubt(seconds: float, rates: Mapping[str, float]) -> float:
    """Standard deviation of the log of that step: its median is one that waits, or one that does not."""
    share = long_share(seconds)
    return math.log(max(rates.get(LONG_STEPS, 1.0), 1.0)) * math.sqrt(share * (1.0 - share))


#: Bytes of the copies that a calibration measures, of memory that is not pinned.
SIZES = (4 << 10, 64 << 10, 512 << 10, 4 << 20, 64 << 20)
#: Bytes from which on glibc maps every tensor anew (DEFAULT_MMAP_THRESHOLD_MAX in malloc.c): a copy of as many is
#: a share of one of the largest size, and a smaller one is not.
FRESH = 32 << 20
#: What copies of a step take where nobody timed any: on the hosts of the records of NVIDIA GPUs (calibration/records)
#: so many seconds more from 64 KB on than at once, at this rate at the most, and at that one into fresh pages. Of what
#: each two of the three records are best fitted by, the third is no worse.
STAGED_BYTES, STAGED_SECONDS, COLD_RATE, FRESH_RATE = 64 << 10, 10e-6, 8.5e9, 1.4e9


def copy_seconds(sizes: Sequence[int], rates: Mapping[str, float], direction: str, memory: str) -> float:
    """Seconds to copy tensors of ``sizes`` bytes one after the other; 0.0 where nothing is known of such copies.

    ``rates`` holds ``copy/<direction>/<memory>/``: the seconds of copies of ``SIZES`` bytes, as far as the device had
    room for them, or ``seconds_per_tensor`` and ``bytes_per_second``.
    """
    prefix = f"copy/{direction}/{memory}"
    measured = {size: rates[f"{prefix}/{size}"] for size in SIZES if f"{prefix}/{size}" in rates}
    if len(measured) > 1:
        return sum(_interpolated(size, measured) for size in sizes)
    per_tensor = rates.get(f"{prefix}/seconds_per_tensor", 0.0)
    bandwidth = rates.get(f"{prefix}/bytes_per_second", 0.0)
    return sum(per_tensor + (size / bandwidth if bandwidth else 0.0) for size in sizes)


def _interpolated(size: int, measured: Mapping[int, float]) -> float:
    """Seconds of one copy by those ``measured``: on straight lines, the last of which goes on up to ``FRESH`` bytes."""
    largest = max(measured)
    if size >= FRESH <= largest:
        return measured[largest] * size / largest
    lines = list(itertools.pairwise(sorted(point for point in measured.items() if point[0] < FRESH)))
    line = next((line for line in lines if size <= line[1][0]), lines[-1])
    (below, shorter), (above, longer) = line
    per_byte = max(longer - shorter, 0.0) / (above - below)
    return shorter + per_byte * max(size - below, 0)


def copies_of_steps(direction: str, start: float, rate: float) -> dict[str, float]:
    """The rates of copies of pageable memory as steps make them, where others take ``start`` seconds at ``rate``.

    ``rate`` is in bytes per second.
    """
    seconds_by_copy = {}
    for size in SIZES:
        fresh = direction == "d2h" and size >= FRESH
        reached = min(rate, FRESH_RATE if fresh else COLD_RATE)
        seconds = start + STAGED_SECONDS * min(size / STAGED_BYTES, 1.0) + size / reached
        seconds_by_copy[f"copy/{direction}/pageable/{size}"] = seconds
    return seconds_by_copy


def waits_for_device(kernel: str) -> bool:
    """Whether the host waits in an op for a value, a number of rows or a check. A trace counts these waits.

    An index by a mask is one: its rows are counted first. ``kernel`` is an op's name, or that of its kernel.
    """
    name = op_of(kernel)
    if name in READS or name.removeprefix("aten::") in COUNTS | CHECKS:
        return True
    return kernel.endswith(".mask") and "index" in name


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


@dataclass
class Clocks:
    """Both clocks, in seconds. The device executes kernels in the order in which the host issues them.

    ``spans`` gets what they do, where it is a list.
    """

    host: float = 0.0
    device: float = 0.0
    spans: list[Span] | None = None

    def run(self, issue: float, device: float, kernels: float = 1.0, label: str = "", call: int = -1) -> None:
        """The host issues ``kernels`` kernels, evenly over ``issue``, which the device executes in ``device``."""
        issued = self.host
        start = max(self.host + issue / kernels, self.device)
        self.host += issue
        if call >= 0:
            self._span("host", "", issued, issue, call)
        if device > 0.0:
            # The last kernel starts once it is issued, or once those before it have ended.
            self.device = max(start + device, self.host + device / kernels)
            self._span("device", label, start, self.device - start, call)

    def wait(self, label: str, seconds: float) -> None:
        """The host waits for the device, and both for ``seconds``: a wait's return, a copy that blocks the host."""
        done = max(self.host, self.device)
        self.host = self.device = done + seconds
        self._span("host", label, done, seconds)

    def _span(self, lane: Literal["host", "device"], label: str, start: float, seconds: float, call: int = -1) -> None:
        if self.spans is not None:
            self.spans.append(Span(lane, label, start, seconds, call))

    @property
    def done(self) -> float:
        """When both have done all."""
        return max(self.host, self.device)


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
    copies = _copies(priced, fit, data, outputs)
    step = total = _second_of_two(priced, fit, copies, 0.0, spans)
    busy = sum(priced.seconds)
    copy = min(copies.inward + copies.outward, max(step - busy, 0.0))
    waits = priced.trace.syncs + sum(waits_inside(priced))
    sync = min(fit.rates.get("sync_seconds", 0.0) * waits, max(step - busy, 0.0) - copy)
    components = {"compute": busy, "dispatch": step - busy - copy - sync, "copy": copy, "sync": sync}
    if loading is not None:
        batch = loading.seconds
        total = max(step, batch) if loading.overlapped else _second_of_two(priced, fit, copies, batch, None)
        components["loading"] = total - step
    return StepTime(total, components)


class Copies(NamedTuple):
    """Seconds of the copies of a step's batch, which the host issues in ``issue`` where it is pinned, and outputs."""

    inward: float
    outward: float
    issue: float | None


def _copies(priced: PricedTrace, fit: Device, data: str, outputs: str | None) -> Copies:
    trace, rates = priced.trace, fit.rates
    inward = outward = 0.0
    if data != "device":
        memory = "pinned" if data == "pinned" else "pageable"
        inward = copy_seconds(tuple(t.stored_bytes for t in trace.batch), rates, "h2d", memory)
    if trace.mode == "infer" and not outputs_stay(data, outputs):
        outward = copy_seconds(tuple(t.stored_bytes for t in trace.outputs), rates, "d2h", "pageable")
    return Copies(inward, outward, len(trace.batch) * rates.get("issue_seconds", 0.0) if data == "pinned" else None)


def _second_of_two(priced: PricedTrace, fit: Device, copies: Copies, loading: float, spans: list[Span] | None) -> float:
    """Seconds of the second of two steps; ``spans`` gets what both clocks do in the first."""
    clocks = Clocks(spans=spans)
    _advance(clocks, priced, fit, copies, loading)
    first, clocks.spans = clocks.done, None
    _advance(clocks, priced, fit, copies, loading)
    return clocks.done - first


def _advance(clocks: Clocks, priced: PricedTrace, fit: Device, copies: Copies, loading: float) -> None:
    """What the host does in a step that loads its batch in ``loading`` seconds, copies it in, and runs op after op."""
    trace, rates = priced.trace, fit.rates
    sync = rates.get("sync_seconds", 0.0)
    spread = framework_seconds(priced.counts, fit.framework) / max(len(trace.calls), 1)
    clocks.host += loading
    if copies.inward and copies.issue is not None:  # queued like a kernel: the host goes on
        clocks.run(copies.issue, copies.inward, label="copy in")
    elif copies.inward:
        clocks.wait("copy in", copies.inward)
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
            clocks.wait("sync", waits * sync)
        clocks.run(issue + spread, seconds, max(run, 1.0), call=number)
        if inside:
            clocks.wait("sync", waits * sync)
    if not trace.calls:
        clocks.run(spread or rates.get("dispatch_seconds", 0.0), 0.0)
    if left or copies.outward:  # the time of a copy out includes the wait for it
        clocks.wait("copy out" if copies.outward else "sync", left * sync + copies.outward)


def waits_inside(priced: PricedTrace) -> tuple[float, ...]:
    """Waits for the device inside each call that a trace does not see, as in a factorisation; by the table of ops."""
    if not priced.works:
        return (0.0,) * len(priced.trace.calls)
    return tuple(
        work.effort.waits if work.effort is not None and not call.syncs and work.family != "view" else 0.0
        for call, work in zip(priced.trace.calls, priced.works, strict=True)
    )
