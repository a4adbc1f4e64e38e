"""A step on two devices: some submodules on the CPU, the rest on an accelerator, and the copies between them.

The host's clock runs the CPU's ops and issues the accelerator's; the accelerator's runs behind its queue. A tensor that
crosses to the accelerator is copied from pageable memory, and one that crosses to the CPU is waited for: both block the
host, as ``.to`` does in a script. The calls run in the order in which they were traced. In a backward pass autograd
runs the nodes of the CPU in a thread of their own, so that a real step may be shorter where both devices are busy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from placer.pricing import timeline
from placer.pricing.device_memory import Residence, available_bytes, memory_elsewhere, needed_bytes
from placer.pricing.floors import step_bounds
from placer.pricing.framework import framework_seconds
from placer.pricing.predict import checked, cost_model, log_sigma, made, one_time_parts, step_watts
from placer.pricing.prediction import Bound, Prediction, PricedSplit, PricedTrace, Provenance, Source, backed, weakest
from placer.pricing.split_trace import split_trace
from placer.pricing.timeline import ScheduleItem, Span, StepTime
from placer.profile import DeviceFit, Profile
from placer.tracing import Trace
from placer.workload import CpuPart, Loading

#: What a device is called of which the CPU does a part.
SUFFIX = "+cpu"
#: Work of the framework that a step does once, on however many devices it runs.
_ONCE = ("step", "training_step")

_T = TypeVar("_T")


def predict_split(
    trace: Trace,
    part: CpuPart,
    device: str,
    profile: Profile,
    host: Profile,
    *,
    threads: int | None = None,
    data: str = "host",
    steps: int | None = None,
    residence: Residence | None = None,
    host_residence: Residence | None = None,
    loading: Loading | None = None,
) -> Prediction:
    """Price ``trace`` with ``part`` on the CPU of ``host`` and the rest on ``device`` of ``profile``.

    The values of the trace have to be known (see ``Workload.on_cpu``). Other arguments as for ``predict``;
    ``host_residence`` is that of the CPU. Raises ProfileError where a profile knows nothing of its device, or its
    numbers make no sense.
    """
    residence, host_residence = residence or Residence(), host_residence or Residence()
    split = split_trace(trace.on(device), part, data)
    cpu_model = cost_model(host, "cpu", threads)
    model = cost_model(profile, residence.fitted_as.get(device, device), threads)
    with np.errstate(all="ignore"):  # as in ``predict``: the result is checked
        cpu = cpu_model.price(split.cpu)
        cpu = replace(cpu, counts={name: count for name, count in cpu.counts.items() if name not in _ONCE})
        accelerator = replace(model.price(split.accelerator), device=device)
    provenance = weakest((cpu_model.provenance, model.provenance))
    both = PricedSplit(split, cpu, accelerator)
    priced = _joined(both, f"{device}{SUFFIX}", provenance, (cpu_model.provenance, model.provenance))
    step = on_both(both, data=data, loading=loading)
    one_time = one_time_parts(split.accelerator, profile, model.fit, device, residence)
    away = residence.fitted_as.get(residence.home, residence.home)
    if residence.here and residence.home != "cpu" and away in profile.devices():  # the CPU's share comes back
        back = timeline.copy_seconds(split.cpu.weight_sizes, profile.fit(away), "d2h", "pageable")
        one_time["weights"] = one_time.get("weights", 0.0) + back
    needed, available = _memory(both, device, profile, host, residence, host_residence)
    found = made(
        f"{device}{SUFFIX}", cpu_model.fit.threads, priced, step, _log_sigma(both, step), one_time, steps=steps,
        needed=needed, available=available, provenance=provenance, bound=_bounded_by(both, step),
        watts=step_watts(profile, model.fit, {"compute": sum(accelerator.seconds)}, step.seconds, 1),
    )  # fmt: skip
    return checked(found, profile, device)


def on_both(
    split: PricedSplit, *, data: str, loading: Loading | None = None, spans: list[Span] | None = None
) -> StepTime:
    """A step on both clocks; ``spans`` gets what they do.

    ``compute`` adds up the ops of both devices. What they do at the same time counts twice in it, and is taken off as
    the component ``overlap``.
    """
    fit = _fit(split.accelerator)
    items, copied = _schedule(split, data)
    done: list[Span] = []
    step = timeline.played(items, fit, done)
    if spans is not None:
        spans.extend(done)
    overlap = _overlap(split, done, step)
    compute = sum(split.cpu.seconds) + sum(split.accelerator.seconds)
    sync = fit.rates.get("sync_seconds", 0.0) * split.accelerator.trace.syncs
    components = timeline.step_components(step, busy=compute - overlap, copy=copied, sync=sync)
    components["compute"] = compute
    if overlap > 0.0:
        components["overlap"] = -overlap
    return timeline.loaded(step, components, loading, lambda loads: timeline.played([loads, *items], fit))


def _schedule(split: PricedSplit, data: str) -> tuple[list[timeline.Entry], float]:
    """What the host does in a step, in order, and the seconds that copies take of it."""
    fit = _fit(split.accelerator)
    entries, copied = timeline.accelerator_schedule(split.accelerator, fit, data=data)
    on_cpu = split.split.on_cpu
    numbers = [number for number, here in enumerate(on_cpu) if not here]
    found: list[timeline.Entry] = []
    before: dict[int, list[timeline.Entry]] = {}  # what belongs to each call of the accelerator
    waiting: list[timeline.Entry] = []
    for label, call, item in entries:
        if label == "copy in":
            found.append((label, call, item))
            continue
        waiting.append((label, numbers[call] if call >= 0 else -1, item))
        if call >= 0:
            before[numbers[call]], waiting = waiting, []
    crossings = {number: [c for c in split.split.crossings if c.call == number] for number in
                 {c.call for c in split.split.crossings}}  # fmt: skip
    spread = framework_seconds(split.cpu.counts, _fit(split.cpu).framework) / max(len(split.cpu.seconds), 1)
    seconds = iter(split.cpu.seconds)
    for number, here in enumerate(on_cpu):
        for crossing in crossings.get(number, ()):
            label, direction = ("copy to the CPU", "d2h") if crossing.to_cpu else ("copy from the CPU", "h2d")
            took = timeline.copy_seconds((crossing.nbytes,), fit, direction, "pageable")
            copied += took
            found.append((label, -1, ScheduleItem(waits=True, alone=took)))
        if here:
            found += [("", -1, ScheduleItem(spread)), ("", number, ScheduleItem(next(seconds)))]
        else:
            found += before[number]
    return [*found, *waiting], copied


def _overlap(split: PricedSplit, spans: Sequence[Span], step: float) -> float:
    """Seconds of a step in which the CPU's ops and the accelerator's run at the same time.

    Steps follow each other: the accelerator may still be busy with the one before.
    """
    on_cpu = split.split.on_cpu
    host = [(s.start, s.start + s.seconds) for s in spans if s.lane == "host" and s.call >= 0 and on_cpu[s.call]]
    device = [(s.start, s.start + s.seconds) for s in spans if s.lane == "device" and s.call >= 0]
    device = sorted([*((start - step, end - step) for start, end in device), *device])
    total, first = 0.0, 0
    for start, end in sorted(host):
        while first < len(device) and device[first][1] <= start:
            first += 1
        for other, until in device[first:]:
            if other >= end:
                break
            total += min(end, until) - max(start, other)
    return total


def _joined(
    split: PricedSplit, name: str, provenance: Provenance, provenances: tuple[Provenance, Provenance]
) -> PricedTrace:
    """The prices of both devices in the order of the whole step."""
    best: Source = "calibrated" if provenance == "calibrated" else "published"
    order = {here: [n for n, there in enumerate(split.split.on_cpu) if there is here] for here in (True, False)}
    sources: dict[int, Source] = {}
    for priced, own in zip((split.cpu, split.accelerator), provenances, strict=True):
        for number, source in zip(order[priced is split.cpu], priced.sources, strict=True):
            sources[number] = best if backed(source, own) else source

    def merged(of_cpu: Sequence[_T], of_accelerator: Sequence[_T]) -> tuple[_T, ...]:
        found = {**dict(zip(order[True], of_cpu, strict=True)), **dict(zip(order[False], of_accelerator, strict=True))}
        return tuple(found[number] for number in range(len(found)))

    cpu, accelerator = split.cpu, split.accelerator
    return PricedTrace(
        trace=split.split.whole,
        device=name,
        threads=cpu.threads,
        families=merged(cpu.families, accelerator.families),
        seconds=merged(cpu.seconds, accelerator.seconds),
        host_seconds=merged(cpu.host_seconds, accelerator.host_seconds),
        sigma=merged(cpu.sigma, accelerator.sigma),
        sources=tuple(sources[number] for number in range(len(sources))),
        fit=accelerator.fit,
        works=merged(cpu.works, accelerator.works),
        split=split,
    )


def _log_sigma(split: PricedSplit, step: StepTime) -> float:
    """Standard deviation of log(step seconds): the doubts about both devices, which have nothing to do with another."""
    own = step.seconds - step.components.get("loading", 0.0)
    cpu = min(sum(split.cpu.seconds) + framework_seconds(split.cpu.counts, _fit(split.cpu).framework), own)
    doubts = [log_sigma(p, _fit(p), t) * t for p, t in ((split.cpu, cpu), (split.accelerator, own - cpu)) if t > 0.0]
    return math.hypot(*doubts) / step.seconds if step.seconds else 0.0


def _bounded_by(split: PricedSplit, step: StepTime) -> Bound:
    """What takes most of a step, of what either device is bounded by."""
    found = step_bounds(split.accelerator, step.components, _fit(split.accelerator))
    for name, seconds in step_bounds(split.cpu, {}, _fit(split.cpu)).items():
        found[name] += seconds
    return max(found, key=lambda name: found[name])


def _memory(
    split: PricedSplit, device: str, profile: Profile, host: Profile, residence: Residence, host_residence: Residence
) -> tuple[int, int | None]:
    """What a step needs of the accelerator and could have there; of the CPU, where that has too little."""
    found = []
    for name, priced, own, there in (
        (device, split.accelerator, profile, residence), ("cpu", split.cpu, host, host_residence)
    ):  # fmt: skip
        fit = _fit(priced)
        available = available_bytes(name, fit, there) if there.here else memory_elsewhere(own, fit)
        found.append((needed_bytes(priced.trace, name), available))
    accelerator, (needed, available) = found
    return accelerator if available is None or needed <= available else (needed, available)


def _fit(priced: PricedTrace) -> DeviceFit:
    assert priced.fit is not None  # prices of a cost model carry their fit
    return priced.fit
