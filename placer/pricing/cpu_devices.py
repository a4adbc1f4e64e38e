"""The ``Device`` of a CPU that was not calibrated: a core that was measured at length, brought to this CPU's speeds.

What ops do is the same everywhere, and networks know how cores of a kind run them (``core_of``). What differs is how
fast they are: as half a second's reading says (``cpu_from_speeds``), or as a data sheet does (``cpu_from_sheet``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

import msgspec

from placer.pricing.framework import HOST_DOUBT, ISSUE_RATIO
from placer.pricing.networks import cpu_class_families
from placer.pricing.physics import (
    BYTES_PER_CYCLE,
    CORE_CYCLE,
    CYCLE,
    FRESH_FROM,
    FRESH_RATE,
    PRODUCT_RATE,
    PRODUCTS,
    STARTING,
    UNFOLDED,
    cycle_seconds,
)
from placer.profile import (
    SAME_CLASS_WITHIN,
    Cores,
    CpuKind,
    CpuSheet,
    Device,
    Profile,
    cpu_kinds,
    dissimilarity,
    kind_of,
    load_cached,
    shipped,
    shipped_folder,
)

#: Standard deviation of log(seconds) that a step has because its CPU is another than the measured one; and because it
#: was measured on one core alone. With these the 90 % interval holds nine in ten networks of the full suite, over CPUs
#: whose own class was left out (docs/accuracy.md).
_OTHER_CPU, _SHARED = 0.18, 0.15
#: Share of the memory channels' rate that a copy reaches, bytes read and written counted: the lines that are written
#: are read first, a third of the traffic, and the channels are busy nine tenths of the time.
_COPIED = 0.6
#: Bytes of a vector register of the machines that the table of ops is fitted to, and kinds of ops that fill one.
_WIDE, _VECTORISED = 64, ("functions",)
#: What a cycle of the table of ops is, in a core's cycles: the table's are as many as start an op on the machines that
#: they were fitted to (``STARTING``), at 3 GHz.
_TABLE_CYCLE = 1.2
#: Clock at which most CPUs issue to a GPU as fast as the hosts that the costs of it are known of (``host_costs``), in
#: GHz: those are Golden Cove's cores at 3.0, which do 1.4 times as much in a clock as Skylake's.
_REFERENCE_GHZ = 3.0 * 1.4
#: Bytes of the last cache of a server's socket, where nothing is known of it.
_USUAL_CACHE = 48e6


_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class CpuSpeeds:
    """What a CPU can do with one number of threads.

    ``dispatch_seconds``: start an op that computes nothing. ``flops_per_second``: multiply float32 matrices.
    ``bytes_per_second``: copy main memory, bytes read and written. ``core_flops_per_second`` and
    ``core_bytes_per_second``: the same of one thread alone. ``region_seconds``: start a loop on all threads.
    ``cycle_seconds``: a core's cycle; 0: the start tells it. ``doubt``: standard deviation of the log of these, as
    far as other programs ran when they were read; 0: the machine was quiet. ``note``: a sentence on that.
    """

    dispatch_seconds: _Positive
    flops_per_second: _Positive
    bytes_per_second: _Positive
    core_flops_per_second: _Positive
    core_bytes_per_second: _Positive
    region_seconds: _NotNegative = 0.0
    cycle_seconds: _NotNegative = 0.0
    doubt: _NotNegative = 0.0
    note: str = ""


def nearest_profile(facts: Mapping[str, Any], *, own_class: bool = True) -> Profile:
    """What is known at length of a CPU like that of a fingerprint.

    The shipped profile of the most similar machine, a quiet one's where two are equal; of a kind of CPU that no shipped
    machine is of, what is known of one core of that kind. Without ``own_class`` profiles of the machine's own class,
    and kinds, are left out: to see how good an estimate is elsewhere. Raises ProfileError.
    """
    profiles = {name: _shipped(name) for name in shipped()}
    unlike = {name: dissimilarity(profile.fingerprint, facts) for name, profile in profiles.items()}
    allowed = [name for name in profiles if own_class or unlike[name] >= SAME_CLASS_WITHIN]
    nearest = min(allowed, key=lambda name: (unlike[name], bool(profiles[name].warnings)))
    kind = kind_of(facts)
    if own_class and kind.name not in {kind_of(profile.fingerprint).name for profile in profiles.values()}:
        return core_of(kind)
    return profiles[nearest]


def of_known_class(facts: Mapping[str, Any]) -> bool:
    """Whether a shipped profile is of the very class of machine that a fingerprint is of. Raises ProfileError."""
    return any(dissimilarity(_shipped(name).fingerprint, facts) < SAME_CLASS_WITHIN for name in shipped())


@cache
def core_of(kind: CpuKind) -> Profile:
    """One core of a kind of CPU: a shipped machine's, with what networks learnt of this kind."""
    measured = _shipped(kind.profile)
    core = measured.fit("cpu", 1)
    families = {**core.families, **cpu_class_families(kind.name)}
    return replace(measured, fits=(replace(core, families=families),))


def _shipped(name: str) -> Profile:
    return load_cached(shipped_folder() / f"{name}.json")  # a user's profile may have its name


def cpu_from_speeds(
    measured: Profile, kind: CpuKind, speeds: CpuSpeeds, threads: int, cache_bytes: float = _USUAL_CACHE
) -> Device:
    """A CPU of a kind that has these speeds with ``threads`` threads, by a profile of another machine.

    ``measured`` with so many threads is scaled; else its core is, and several share ops with a last
    cache of ``cache_bytes``. Raises ProfileError if the profile has no CPU.
    """
    if threads in measured.threads("cpu"):
        of_all = measured.fit("cpu", threads)
        base = math.hypot(of_all.interval.get("base", 0.0), _OTHER_CPU, speeds.doubt)
        device = _scaled(of_all, measured, kind, speeds, speeds.flops_per_second, speeds.bytes_per_second, base)
        return replace(device, rates=_with_units(device.rates, kind, speeds, threads))
    one = measured.fit("cpu", 1)
    base = math.hypot(one.interval.get("base", 0.0), _OTHER_CPU, _SHARED, speeds.doubt)
    core = _scaled(one, measured, kind, speeds, speeds.core_flops_per_second, speeds.core_bytes_per_second, base)
    faster = speeds.flops_per_second / speeds.core_flops_per_second
    of_all_cores = {name: rate * faster for name, rate in core.rates.items() if name.startswith("flops/")}
    cores = Cores(
        _with_units(core.rates, kind, speeds, threads),
        speeds.region_seconds,
        speeds.flops_per_second / kind.multiplies,
        speeds.bytes_per_second,
        cache_bytes,
        kind.thread_seconds,
    )
    rates = {**cores.rates, **of_all_cores, "bytes_per_second": speeds.bytes_per_second}
    return replace(core, threads=threads, rates=rates, cores=cores)


def _scaled(
    fit: Device, measured: Profile, kind: CpuKind, speeds: CpuSpeeds, flops: float, copied: float, base: float
) -> Device:
    """A fit as of a CPU that multiplies and copies so fast, with as many threads.

    What is known of neither how ops are shared nor of caches lies half way between the two machines.
    """
    there = fit.rates
    arithmetic = there["flops/float32"] * kind.multiplies / flops
    cycle = speeds.cycle_seconds or speeds.dispatch_seconds / STARTING
    narrower = _WIDE / kind.register_bytes
    started = starting(fit, speeds.dispatch_seconds)
    rates = {
        **started.rates,
        **{name: rate / arithmetic for name, rate in there.items() if name.startswith("flops/")},
        "bytes_per_second": math.sqrt(there["bytes_per_second"] * copied),
        CYCLE: cycle,
        **{f"{CYCLE}/{what}": narrower * cycle for what in _VECTORISED},
    }
    return replace(
        started,
        rates=rates,
        estimated=True,
        reference=str(measured.fingerprint.get("cpu") or ""),
        interval={**fit.interval, "base": base, HOST_DOUBT: speeds.doubt},
    )


def _with_units(rates: Mapping[str, float], kind: CpuKind, speeds: CpuSpeeds, threads: int) -> Mapping[str, float]:
    """The rates of a core, with those of new memory, of a unit that multiplies alone, and of unfolded convolutions."""
    with_units = dict(rates)
    if kind.fresh is not None and kind.fresh_from is not None:
        with_units |= {FRESH_FROM: kind.fresh_from, FRESH_RATE: kind.fresh}
    if kind.multiplies > 1.0:
        with_units[PRODUCT_RATE] = speeds.core_flops_per_second
    if kind.unfolds:
        core_cycle = cycle_seconds(rates) / _TABLE_CYCLE
        with_units |= {
            PRODUCTS: speeds.flops_per_second,
            UNFOLDED: BYTES_PER_CYCLE * threads / core_cycle,
            CORE_CYCLE: core_cycle,
        }
    return with_units


def starting(fit: Device, dispatch_seconds: float) -> Device:
    """A fit as of a CPU that starts an op in so many seconds, and takes as many times as long for all between ops."""
    cycle, slower = cycle_seconds(fit.rates), dispatch_seconds / fit.rates["dispatch_seconds"]
    rates = {**fit.rates, "dispatch_seconds": dispatch_seconds, CYCLE: cycle}
    return replace(fit, rates=rates, framework={name: slower * seconds for name, seconds in fit.framework.items()})


def cpu_from_sheet(sheet: CpuSheet, cores: float) -> Device:
    """A CPU by its data sheet: so many cores of one socket or of as many as it takes, with a thread on each.

    Less than one core is that share of its time.
    """
    kind = cpu_kinds()[sheet.kind]
    threads, sockets = max(math.ceil(cores), 1), max(math.ceil(cores / sheet.cores), 1)
    cache_bytes = float(sockets * sheet.l3_bytes + threads * sheet.l2_bytes)
    device = cpu_from_speeds(core_of(kind), kind, speeds_of_sheet(sheet, cores), threads, cache_bytes)
    # How fast a host issues to a GPU is not told by how its kernels start: a kind's cycles make it twice too slow.
    return replace(device, rates={**device.rates, ISSUE_RATIO: _REFERENCE_GHZ / sheet.clock_ghz})


def speeds_of_sheet(sheet: CpuSheet, cores: float) -> CpuSpeeds:
    """What would be read on so many cores of a CPU, by its data sheet and its kind."""
    kind, share, several = cpu_kinds()[sheet.kind], min(cores, 1.0), max(cores, 1.0)
    cycles_per_second = share * sheet.clock_ghz * 1e9
    core = kind.multiplies * kind.reached * cycles_per_second * sheet.flops_per_cycle
    channels, copied = _COPIED * sheet.bytes_per_second, share * kind.copied
    return CpuSpeeds(
        dispatch_seconds=kind.start_cycles / cycles_per_second,
        flops_per_second=core * several**kind.scaling,
        bytes_per_second=min(several * copied, math.ceil(several / sheet.cores) * channels),
        core_flops_per_second=core,
        core_bytes_per_second=min(copied, channels),
        region_seconds=kind.region_seconds(math.ceil(several)),
        cycle_seconds=_TABLE_CYCLE / cycles_per_second,
    )
