"""What limits an op on a device, as in the roofline model, and what a whole step is bounded by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from placer.pricing.floors import roofline_parts
from placer.pricing.framework import framework_seconds
from placer.pricing.prediction import Bound, PricedTrace
from placer.pricing.work import Work
from placer.profile import DeviceFit

#: What a step's op time is made of, in the order it is shown. The parts add up to the component ``compute``.
COMPUTE_PARTS = ("arithmetic", "memory", "overhead", "optimizer")


def op_limit(work: Work, fit: DeviceFit) -> str:
    """The longest of an op's three parts: its arithmetic, its memory traffic, or the overhead of starting it."""
    overhead, arithmetic, memory = roofline_parts(work, fit)
    times = {"arithmetic": arithmetic, "memory": memory, "overhead": overhead}
    return max(times, key=lambda name: times[name])


def compute_parts(priced: PricedTrace, fit: DeviceFit) -> dict[str, float]:
    """The seconds of a step's ops by ``COMPUTE_PARTS``: what limits them, the optimizer's apart."""
    rows = list(zip(priced.trace.calls, priced.works, priced.seconds, strict=True))
    found = _by_limit(((work, seconds) for call, work, seconds in rows if call.phase != "optimizer"), fit)
    return {**found, "optimizer": sum(seconds for call, _, seconds in rows if call.phase == "optimizer")}


def step_bounds(priced: PricedTrace, components: Mapping[str, float], fit: DeviceFit) -> dict[Bound, float]:
    """The seconds of a step by what bounds them; they add up to the step.

    An accelerator runs behind its host. Where the host needs longer to issue the ops than the device to run them,
    faster kernels would save nothing: all that is not copied or waited for is bounded by launches.
    """
    found: dict[Bound, float] = {
        "launches": components.get("dispatch", 0.0), "transfer": components.get("copy", 0.0), "arithmetic": 0.0,
        "memory": 0.0, "waits": components.get("sync", 0.0), "loader": components.get("loading", 0.0),
    }  # fmt: skip
    device = sum(priced.seconds)
    if priced.device != "cpu" and _host_seconds(priced, fit) > device:
        found["launches"] += device
        return found
    limits = _by_limit(zip(priced.works, priced.seconds, strict=True), fit)
    found["launches"] += limits["overhead"]
    found["arithmetic"] += limits["arithmetic"]
    found["memory"] += limits["memory"]
    return found


def bounded_by(priced: PricedTrace, components: Mapping[str, float], fit: DeviceFit) -> Bound:
    """What bounds most of a step (see ``step_bounds``)."""
    found = step_bounds(priced, components, fit)
    return max(found, key=lambda name: found[name])


def _host_seconds(priced: PricedTrace, fit: DeviceFit) -> float:
    return sum(priced.host_seconds) + framework_seconds(priced.counts, fit.framework)


def _by_limit(rows: Iterable[tuple[Work, float]], fit: DeviceFit) -> dict[str, float]:
    sums = {"arithmetic": 0.0, "memory": 0.0, "overhead": 0.0}
    known: dict[int, str] = {}
    for work, seconds in rows:
        if id(work) not in known:
            known[id(work)] = op_limit(work, fit)
        sums[known[id(work)]] += seconds
    return sums
