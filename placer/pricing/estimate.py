"""The profile of a machine that was not calibrated: what others measured, brought to its speed.

The CPU's numbers are those of the shipped profile of the nearest class, scaled by a speed probe of half a second. An
accelerator's are those of the catalog, found by the name that its driver gives.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from placer import machine
from placer.errors import ProfileMissing, UnknownCPU, UnknownGPU
from placer.pricing.cpu_classes import CLASSES
from placer.pricing.framework import HOST_DOUBT, ISSUE_RATIO
from placer.pricing.networks import cpu_class_families
from placer.pricing.physics import CYCLE, PRODUCT_RATE, STARTING, cycle_seconds
from placer.pricing.speed_reading import cpu_speeds
from placer.pricing.speeds import CpuSpeeds
from placer.pricing.unfolded import BYTES_PER_CYCLE, CORE_CYCLE, PRODUCTS, UNFOLDED
from placer.profile import (
    SAME_CLASS_WITHIN,
    SCHEMA,
    SUFFIXES,
    THREAD_SECONDS,
    Cores,
    CpuSheet,
    Device,
    FamilyFit,
    Profile,
    dissimilarity,
    load,
    load_cached,
    named_cores,
    reported_gpu,
    shipped,
    shipped_facts,
    shipped_folder,
    stale_fields,
)

#: Standard deviation of log(seconds) that a step has because its CPU is another than the measured one; and because it
#: was measured on one core alone. With these the 90 % interval holds nine in ten
#: networks of the full suite, over CPUs whose own class was left out (docs/accuracy.md).
_OTHER_CPU, _SHARED = 0.18, 0.15
#: Share of the memory channels' rate that a copy reaches, bytes read and written counted: the lines that are written
#: are read first, a third of the traffic, and the channels are busy nine tenths of the time.
COPIED = 0.6
#: Bytes of a vector register of the machines that the table of ops is fitted to, and kinds of ops that fill one.
WIDE, VECTORISED = 64, ("functions",)
#: What a cycle of the table of ops is, in a core's cycles: the table's are as many as start an op on the
#: machines that they were fitted to (``STARTING``), at 3 GHz.
CYCLE_AT_1_GHZ = 1.2
#: Bytes of the last cache of a server's socket, where nothing is known of it.
USUAL_CACHE = 48e6


def on_other_cpu(
    profile: Profile, speeds: CpuSpeeds, *, threads: int, families: Mapping[str, FamilyFit] | None = None,
    cache_bytes: float = USUAL_CACHE, register_bytes: int = WIDE, thread_seconds: float = THREAD_SECONDS,
    unfolding: Mapping[str, float] | None = None, fresh: tuple[float, float] = (math.inf, math.inf),
) -> Profile:  # fmt: skip
    """The profile as of a CPU that has these speeds with ``threads`` threads.

    Its one fit is that of so many threads, scaled; else that of one thread, scaled to a core, of which ``many_cores``
    says what several take. ``families`` take the place of the fit's; ``register_bytes`` and ``thread_seconds`` are
    those of a ``CpuClass``, ``cache_bytes`` what the cores' last cache holds, ``unfolding`` the rates of ``unfolded``
    where it unfolds. ``fresh``: from how many bytes on the memory of results is new, and its bytes/s. Raises
    ProfileError if the profile has no CPU.
    """
    measured = threads in profile.threads("cpu")
    fit = profile.fit("cpu", threads if measured else 1)
    of_core = speeds if measured else replace(
        speeds, flops_per_second=speeds.core_flops_per_second, bytes_per_second=speeds.core_bytes_per_second
    )  # fmt: skip
    base = math.hypot(fit.interval.get("base", 0.0), _OTHER_CPU, 0.0 if measured else _SHARED, speeds.doubt)
    scaled = replace(
        scaled_fit(fit, of_core, WIDE / register_bytes), threads=threads, families={**fit.families, **(families or {})},
        interval={**fit.interval, "base": base, HOST_DOUBT: speeds.doubt}, estimated=True,
        reference=str(profile.fingerprint.get("cpu") or ""),
    )  # fmt: skip
    scaled = replace(scaled, rates={**scaled.rates, **(unfolding or {})})
    if not measured:
        faster = speeds.flops_per_second / speeds.core_flops_per_second
        of_all = {name: rate * faster for name, rate in scaled.rates.items() if name.startswith("flops/")}
        cores = Cores(
            scaled.rates, speeds.region_seconds, speeds.flops_per_second, speeds.bytes_per_second, cache_bytes,
            thread_seconds, fresh_from=fresh[0], fresh_bytes_per_second=fresh[1],
        )  # fmt: skip
        rates = {**scaled.rates, **of_all, "bytes_per_second": speeds.bytes_per_second}
        scaled = replace(scaled, rates=rates, cores=cores)
    return replace(profile, fits=(scaled,), samples=(), noise={}, warnings=(speeds.note,) if speeds.note else ())


@cache
def on_sheet(sheet: CpuSheet, threads: int) -> Profile:
    """What is known of a CPU of the catalog, run with ``threads`` threads, one on each core of as many sockets.

    A measured core of its kind, scaled to the sheet's clock, vectors, caches and memory.
    """
    kind = CLASSES[sheet.kind]
    measured = load_cached(shipped_folder() / f"{kind.profile}.json")
    sockets = math.ceil(threads / sheet.cores)
    core = kind.reached * sheet.clock_ghz * 1e9 * sheet.flops_per_cycle
    channels = COPIED * sheet.bytes_per_second
    speeds = CpuSpeeds(
        dispatch_seconds=kind.start_cycles / (sheet.clock_ghz * 1e9),
        flops_per_second=core * threads**kind.scaling,
        bytes_per_second=min(threads * kind.copied, sockets * channels),
        core_flops_per_second=core,
        core_bytes_per_second=min(kind.copied, channels),
        region_seconds=kind.region_seconds(threads),
        cycle_seconds=CYCLE_AT_1_GHZ / (sheet.clock_ghz * 1e9),
    )
    unfolding = {
        PRODUCTS: kind.multiplies * speeds.flops_per_second,
        UNFOLDED: BYTES_PER_CYCLE * sheet.clock_ghz * 1e9 * threads,
        CORE_CYCLE: 1e-9 / sheet.clock_ghz,
    }
    scaled = on_other_cpu(
        measured, speeds, threads=threads, families=cpu_class_families(sheet.kind), register_bytes=kind.register_bytes,
        unfolding=unfolding if kind.unfolds else None,
        cache_bytes=float(sockets * sheet.l3_bytes + threads * sheet.l2_bytes), thread_seconds=kind.thread_seconds,
        fresh=(kind.fresh_from, kind.fresh),
    )  # fmt: skip
    facts = {
        "cpu": sheet.name, "cores": threads, "threads": threads, "accelerators": [],
        "torch": measured.fingerprint["torch"],
    }  # fmt: skip
    product = {PRODUCT_RATE: kind.multiplies * core} if kind.multiplies > 1.0 else {}
    # How fast a host issues to a GPU is not told by how its kernels start: a class's cycles make it twice too slow.
    (fit,) = scaled.fits
    cores = fit.cores and replace(fit.cores, rates={**fit.cores.rates, **product})
    fits = (replace(fit, rates={**fit.rates, **product, ISSUE_RATIO: 1.0}, cores=cores),)
    note = f"{sheet.name}: a calibrated core of its kind, scaled to its clock, vectors and memory"
    return replace(
        scaled, fits=fits, created="", fingerprint=facts, warnings=(note,), seconds=0.0, name=sheet.name
    )


def starting(fit: Device, dispatch_seconds: float) -> Device:
    """A fit as of a CPU that starts an op in so many seconds, and takes as many times as long for all between ops."""
    cycle, slower = cycle_seconds(fit.rates), dispatch_seconds / fit.rates["dispatch_seconds"]
    rates = {**fit.rates, "dispatch_seconds": dispatch_seconds, CYCLE: cycle}
    return replace(fit, rates=rates, framework={name: slower * seconds for name, seconds in fit.framework.items()})


def scaled_fit(fit: Device, speeds: CpuSpeeds, narrower: float = 1.0) -> Device:
    """A fit as of a CPU of these speeds, those of all threads. ``narrower`` are its registers, by this factor.

    What is known of neither how ops are shared nor of caches lies half way between the two machines.
    """
    there = fit.rates
    arithmetic = there["flops/float32"] / speeds.flops_per_second
    rates = {name: rate / arithmetic if name.startswith("flops/") else rate for name, rate in there.items()}
    rates["bytes_per_second"] = math.sqrt(there["bytes_per_second"] * speeds.bytes_per_second)
    cycle = speeds.cycle_seconds or speeds.dispatch_seconds / STARTING
    rates |= {CYCLE: cycle, **{f"{CYCLE}/{kind}": narrower * cycle for kind in VECTORISED}}
    started = starting(fit, speeds.dispatch_seconds)
    return replace(started, rates={**started.rates, **rates, "dispatch_seconds": speeds.dispatch_seconds})


def estimated_profile(calibration: Profile | None, why: str, threads: int) -> Profile:
    """What is known of this machine, run with ``threads`` CPU threads, where its calibration says nothing of it.

    ``own`` is a calibration that does not hold for the whole machine any more; what holds of it is kept. ``why`` says
    what is wrong with the calibration, as an error that ends in what to run. Accelerators that the catalog does not
    know are left out. Creates no device context. Raises ProfileError where a shipped profile cannot be read.
    """
    facts = machine.fingerprint()
    warnings = [f"an estimate from published measurements, as {why}"]
    cpu = _calibrated_cpu(calibration, facts)
    if cpu is None:
        nearest = nearest_profile(facts)
        cpu = on_other_cpu(nearest, cpu_speeds(facts, nearest, threads), threads=threads)
        warnings += cpu.warnings
    others = (_accelerator(accelerator, calibration, cpu, facts) for accelerator in facts["accelerators"])
    return Profile(
        schema=SCHEMA, created="", fingerprint=facts, samples=(), fits=(*cpu.fits, *(fit for fit in others if fit)),
        noise={}, warnings=tuple(warnings), complete=True, seconds=0.0, name="estimate",
        unusable={} if calibration is None else calibration.unusable,
    )  # fmt: skip


def nearest_profile(facts: Mapping[str, Any], *, own_class: bool = True) -> Profile:
    """The shipped profile of the machine most like that of a fingerprint; a quiet machine's, where two are equal.

    Without ``own_class`` profiles of the machine's own class are left out: to see how good an estimate is elsewhere.
    Raises ProfileError.
    """
    facts_of = {name: shipped_facts(name) for name in shipped()}
    unlike = {name: dissimilarity(fingerprint, facts) for name, (fingerprint, _) in facts_of.items()}
    allowed = [name for name in facts_of if own_class or unlike[name] >= SAME_CLASS_WITHIN]
    nearest = min(allowed, key=lambda name: (unlike[name], facts_of[name][1]))
    return load_cached(shipped_folder() / f"{nearest}.json")  # a user's profile may have its name


def _calibrated_cpu(calibration: Profile | None, facts: Mapping[str, Any]) -> Profile | None:
    """The CPU of ``own``, if nothing that it depends on has changed."""
    if calibration is None or stale_fields(calibration, {**facts, "accelerators": ()}):
        return None
    if "cpu" not in calibration.devices():
        return None
    return replace(calibration, fits=tuple(fit for fit in calibration.fits if fit.device == "cpu"))


def _accelerator(
    accelerator: Mapping[str, Any], calibration: Profile | None, cpu: Profile, facts: Mapping[str, Any]
) -> Device | None:
    """The fit of an accelerator: as calibrated, where that holds, or of the catalog; None where nothing is known."""
    device = str(accelerator["device"])
    alone = {**facts, "accelerators": [accelerator]}
    if calibration is not None and device in calibration.devices() and not stale_fields(calibration, alone):
        return calibration.fit(device)
    # Only where there is an accelerator: the catalog's model takes time to load.
    from placer.pricing.gpu.catalog_profile import gpu_profile

    try:
        of_catalog = gpu_profile(reported_gpu(accelerator).name, cpu)
    except UnknownGPU:
        return None
    return replace(of_catalog.fits[0], device=device, estimated=True)


def named_profile(
    source: Profile | str | os.PathLike[str] | None, cpu: Callable[[], Profile | None], *, samples: bool = False
) -> Profile:
    """A profile by its path or name; else of the GPU (see ``gpu_profile``) or CPU that a catalog finds by that name.

    ``cpu`` gives the profile of the GPU's host. ``samples`` keeps those of a file. Raises ProfileError; UnknownGPU
    lists the closest names where none is found.
    """
    try:
        return load(source) if samples and not isinstance(source, Profile) else load_cached(source)
    except (ProfileMissing, ValueError) as missing:  # a GPU's name need not be one that a profile could have
        if not isinstance(source, str) or source.endswith(SUFFIXES):
            raise
        # On use: most sources are profiles.
        from placer.pricing.gpu.catalog_profile import gpu_profile

        try:
            return gpu_profile(source, cpu())
        except UnknownGPU as unknown:
            with suppress(UnknownCPU):
                return on_sheet(*named_cores(source))
            if os.sep in source:
                raise missing from None
            what = str(missing) if isinstance(missing, ProfileMissing) else (
                f"no profile is called {source!r}; list them with: placer profile list"
            )
            raise UnknownGPU(f"{what}; {unknown}") from None
