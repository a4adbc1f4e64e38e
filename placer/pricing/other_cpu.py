"""A CPU's profile -> the profile of another CPU, of which only a few speeds are known.

What an op costs is a sum: a latency, costs of its arithmetic, and costs of the memory it moves. Each part is scaled by
the speed that it depends on; that of memory by the square root, as about half of what ops move stays in caches. How
the time of an op departs from that sum is taken to be the same on both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from placer.profile import DeviceFit, FamilyFit, Profile

#: Amounts that are moved memory, besides those called bytes.
_MOVED = frozenset({"moved", "moved_singly", "renewed", "table", "activations"})
#: Standard deviation of log(seconds) that a step has because its CPU is another than the measured one; and for each
#: doubling of the number of threads from the nearest that was measured. With these the 90 % interval holds nine in ten
#: networks of the full suite, over CPUs whose own class was left out (docs/accuracy.md).
_OTHER_CPU, _PER_DOUBLING = 0.18, 0.25
#: Share of the memory channels' rate that a copy reaches, bytes read and written counted: the lines that are written
#: are read first, a third of the traffic, and the channels are busy nine tenths of the time.
COPIED = 0.6


@dataclass(frozen=True)
class CpuSpeeds:
    """What a CPU can do with one number of threads.

    ``dispatch_seconds``: start an op that computes nothing. ``flops_per_second``: multiply float32 matrices.
    ``bytes_per_second``: copy main memory, bytes read and written.
    """

    dispatch_seconds: float
    flops_per_second: float
    bytes_per_second: float


def on_other_cpu(profile: Profile, speeds: CpuSpeeds, *, threads: int) -> Profile:
    """The profile as of a CPU that has these speeds with ``threads`` threads.

    Its one fit is that of the nearest number of threads, scaled. Raises ProfileError if the profile has no CPU.
    """
    fit = profile.fit("cpu", threads)
    doublings = abs(math.log2(threads / fit.threads))
    base = math.hypot(fit.interval.get("base", 0.0), _OTHER_CPU, _PER_DOUBLING * doublings)
    scaled = replace(
        _scaled(fit, speeds), threads=threads, interval={**fit.interval, "base": base}, estimated=True,
        reference=str(profile.fingerprint.get("cpu") or ""),
    )  # fmt: skip
    return replace(profile, fits=(scaled,), samples=(), noise={}, warnings=())


def _scaled(fit: DeviceFit, speeds: CpuSpeeds) -> DeviceFit:
    there = fit.rates
    scale = {
        "start": speeds.dispatch_seconds / there["dispatch_seconds"],
        "arithmetic": there["flops/float32"] / speeds.flops_per_second,
        "memory": math.sqrt(there["bytes_per_second"] / speeds.bytes_per_second),
    }
    return replace(
        fit,
        rates=_rates(there, scale),
        families={name: _family(family, scale) for name, family in fit.families.items()},
        framework={name: scale["start"] * seconds for name, seconds in fit.framework.items()},
    )


def _family(family: FamilyFit, scale: Mapping[str, float]) -> FamilyFit:
    return replace(family, parameters={name: v * scale.get(_bound(name), 1.0) for name, v in family.parameters.items()})


def _rates(rates: Mapping[str, float], scale: Mapping[str, float]) -> dict[str, float]:
    found = dict(rates)
    for name in rates:
        if name.startswith("flops/"):
            found[name] /= scale["arithmetic"]
    found["bytes_per_second"] /= scale["memory"] ** 2
    found["dispatch_seconds"] *= scale["start"]
    return found


def _bound(parameter: str) -> str:
    """Which speed a parameter of a family's floor depends on; "" for what is no cost."""
    amount = parameter.partition("@")[0]
    if amount.endswith("_told"):
        return ""
    if "flops" in amount:
        return "arithmetic"
    return "memory" if "bytes" in amount or amount in _MOVED else "start"
