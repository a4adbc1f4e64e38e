"""What limits each op on a device, and a step's op time by it: the roofline's question, asked of the priced ops."""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing import Prediction, PricedTrace, Work, ops_inside
from placer.profile import DeviceFit

#: What a step's op time is made of, in the order it is shown. The parts add up to the component ``compute``.
BOUNDS = ("arithmetic", "memory", "overhead", "optimizer")


def bounds(predictions: Mapping[str, Prediction]) -> dict[str, dict[str, float]]:
    """Seconds by device and bound, of the devices whose prices say what they come from."""
    return {name: _by_bound(p.priced, p.priced.fit) for name, p in predictions.items() if p.priced.fit is not None}


def bound(work: Work, fit: DeviceFit) -> str:
    """Which part of the roofline is the longest: arithmetic, memory traffic, or starting the op at all."""
    from placer.pricing import UNMEASURED_RATE

    rates = fit.rates
    peak = rates.get(f"flops/{work.dtype}") or rates["flops/float32"] * UNMEASURED_RATE.get(work.dtype, 1.0)
    times = {
        "arithmetic": work.flops / peak,
        "memory": work.bytes / rates["bytes_per_second"],
        "overhead": ops_inside(work) * rates["dispatch_seconds"],
    }
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
