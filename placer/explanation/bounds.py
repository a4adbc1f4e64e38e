"""What limits each op on a device, as in the roofline model, and how a step's op time divides among these limits."""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing import Prediction, PricedTrace, Work, roofline_parts
from placer.profile import DeviceFit

#: What a step's op time is made of, in the order it is shown. The parts add up to the component ``compute``.
BOUNDS = ("arithmetic", "memory", "overhead", "optimizer")


def bounds(predictions: Mapping[str, Prediction]) -> dict[str, dict[str, float]]:
    """Seconds by device and bound. A device whose prices carry no fit is left out."""
    return {name: _by_bound(p.priced, p.priced.fit) for name, p in predictions.items() if p.priced.fit is not None}


def bound(work: Work, fit: DeviceFit) -> str:
    """The longest of an op's three parts: its arithmetic, its memory traffic, or the overhead of starting it."""
    overhead, arithmetic, memory = roofline_parts(work, fit)
    times = {"arithmetic": arithmetic, "memory": memory, "overhead": overhead}
    return max(times, key=lambda name: times[name])


def _by_bound(priced: PricedTrace, fit: DeviceFit) -> dict[str, float]:
    sums = dict.fromkeys(BOUNDS, 0.0)
    known: dict[int, str] = {}
    for call, work, seconds in zip(priced.trace.calls, priced.works, priced.seconds, strict=True):
        if call.phase == "optimizer":
            sums["optimizer"] += seconds
            continue
        if id(work) not in known:
            known[id(work)] = bound(work, fit)
        sums[known[id(work)]] += seconds
    return sums
