"""The profile of a machine that was not calibrated: what others measured, brought to its speed.

The CPU's numbers are those of the shipped profile of the nearest class, scaled by a speed probe of half a second. An
accelerator's are those of the catalog, found by the name that its driver gives.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from placer import machine
from placer import profile as profiles
from placer.errors import ProfileMissing, UnknownCPU, UnknownGPU
from placer.pricing.predict import predict
from placer.profile import SCHEMA, CpuSheet, DeviceFit, Profile, load, load_cached, named_cores, sheet_of
from placer.tracing import trace
from placer.workload import make_workload

#: Amounts that are moved memory, besides those called bytes.
_MOVED = frozenset({"moved", "moved_singly", "renewed", "table", "activations"})
#: Standard deviation of log(seconds) that a step has because its CPU is another than the measured one; and for each
#: doubling of the number of threads from the nearest that was measured. With these the 90 % interval holds nine in ten
#: networks of the full suite, over CPUs whose own class was left out (docs/accuracy.md).
_OTHER_CPU, _PER_DOUBLING = 0.18, 0.25
#: The shipped profile that stands for cloud servers: Emerald Rapids at the clock that all its cores keep. By the data
#: sheets, scalar work takes 1.2 to 1.3 times as long on Cascade Lake and Zen 2, as long on Ice Lake and Zen 3, and 0.85
#: times as long on Zen 4.
SERVER = "intel-xeon-avx512-2-core"
#: Share of the memory channels' rate that a copy reaches, bytes read and written counted: the lines that are written
#: are read first, a third of the traffic, and the channels are busy nine tenths of the time.
COPIED = 0.6


_Positive = Annotated[float, msgspec.Meta(gt=0)]


@dataclass(frozen=True)
class CpuSpeeds:
    """What a CPU can do with one number of threads.

    ``dispatch_seconds``: start an op that computes nothing. ``flops_per_second``: multiply float32 matrices.
    ``bytes_per_second``: copy main memory, bytes read and written.
    """

    dispatch_seconds: _Positive
    flops_per_second: _Positive
    bytes_per_second: _Positive


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


@cache
def server_profile() -> Profile:
    """The measurements of the shipped server. Raises ProfileError where they cannot be read."""
    return load_cached(profiles.shipped_folder() / f"{SERVER}.json")  # a user's profile may have its name


@cache
def on_sheet(sheet: CpuSheet, threads: int) -> Profile:
    """What is known of a CPU of the catalog with so many threads: one on each core, of as many sockets as that takes.

    A server's measurements, scaled: arithmetic by the cores, their clock and vectors, memory by the cores up to what
    the sockets' channels copy, and the start of an op by the clock. Its provenance is ``published``. Cached.
    """
    server = server_profile()
    measured, of = server.fit("cpu", threads), sheet_of(server.fingerprint)
    if of is None:
        raise LookupError(f"the catalog of CPUs has none for {server.fingerprint['cpu']}")
    clock = sheet.clock_ghz / of.clock_ghz
    flops, moved = (measured.rates[name] / measured.threads for name in ("flops/float32", "bytes_per_second"))
    sockets = math.ceil(threads / sheet.cores)
    speeds = CpuSpeeds(
        dispatch_seconds=measured.rates["dispatch_seconds"] / clock,
        flops_per_second=threads * flops * clock * sheet.flops_per_cycle / of.flops_per_cycle,
        bytes_per_second=min(threads * moved, COPIED * sockets * sheet.bytes_per_second),
    )
    facts = {
        "cpu": sheet.name, "cores": threads, "threads": threads, "accelerators": [], "torch": server.fingerprint["torch"]
    }
    note = f"{sheet.name}: a server's measurements, scaled by its cores, clock, vectors and memory channels"
    scaled = on_other_cpu(server, speeds, threads=threads)
    return replace(scaled, created="", fingerprint=facts, warnings=(note,), seconds=0.0, name=sheet.name)


def _scaled(fit: DeviceFit, speeds: CpuSpeeds) -> DeviceFit:
    there = fit.rates
    start = speeds.dispatch_seconds / there["dispatch_seconds"]
    arithmetic = there["flops/float32"] / speeds.flops_per_second
    memory = math.sqrt(there["bytes_per_second"] / speeds.bytes_per_second)
    scale = {"start": start, "arithmetic": arithmetic, "memory": memory, "": 1.0}
    rates = {name: rate / arithmetic if name.startswith("flops/") else rate for name, rate in there.items()}
    rates |= {"bytes_per_second": speeds.bytes_per_second, "dispatch_seconds": speeds.dispatch_seconds}
    families = {
        family: replace(known, parameters={name: v * scale[_bound(name)] for name, v in known.parameters.items()})
        for family, known in fit.families.items()
    }
    framework = {name: start * seconds for name, seconds in fit.framework.items()}
    return replace(fit, rates=rates, families=families, framework=framework)


def _bound(parameter: str) -> str:
    """Which speed a parameter of a family's floor depends on; "" for what is no cost."""
    amount = parameter.partition("@")[0]
    if amount.endswith("_told"):
        return ""
    if "flops" in amount:
        return "arithmetic"
    return "memory" if "bytes" in amount or amount in _MOVED else "start"

#: What the speeds depend on besides the number of threads and the profile.
_FIELDS = ("cpu", "cpu_version", "cpu_instructions", "cores", "torch")


def cpu_speeds(facts: Mapping[str, Any], nearest: Profile, threads: int) -> CpuSpeeds:
    """The speeds of this CPU, of which ``facts`` is the fingerprint, with ``threads`` threads, beside ``nearest``.

    They are measured where none are remembered, in half a second. A file that cannot be read or written costs nothing
    but the next measurement.
    """
    path = speeds_path()
    of = {**{name: facts.get(name) for name in _FIELDS}, "beside": nearest.created}
    by_threads = _remembered(path, of)
    if str(threads) not in by_threads:
        by_threads[str(threads)] = beside(nearest, machine.measure_speeds(), threads)
        with suppress(OSError):
            profiles.replace_file(path, msgspec.json.encode(_Remembered(of, by_threads)))
    return by_threads[str(threads)]


def beside(nearest: Profile, measured: machine.MeasuredSpeeds, threads: int) -> CpuSpeeds:
    """The speeds of a CPU by what was measured on it with ``threads`` threads.

    How fast it starts ops shows in the small step: in what it took, beside what it takes by the profile ``nearest``.
    """
    slower = measured.small_step_seconds / small_step_seconds(nearest, threads)
    return CpuSpeeds(
        dispatch_seconds=slower * nearest.fit("cpu", threads).rates["dispatch_seconds"],
        flops_per_second=measured.flops_per_second,
        bytes_per_second=measured.bytes_per_second,
    )


def small_step_seconds(profile: Profile, threads: int) -> float:
    """Seconds of the small step, as the profile prices it."""
    model, batch = machine.small_network()
    step = make_workload(model, example=batch, mode="train", optimizer="adam", data="device")
    return predict(trace(step), profile, devices=("cpu",), threads=threads)["cpu"].step_seconds


def speeds_path() -> Path:
    """The file that keeps this machine's speeds."""
    return profiles.data_home() / "speeds" / f"{machine.machine_id()}.json"


class _Remembered(msgspec.Struct):
    """The file: what the speeds depend on, and the speeds by number of threads."""

    of: dict[str, Any]
    threads: dict[str, CpuSpeeds]


def _remembered(path: Path, of: Mapping[str, Any]) -> dict[str, CpuSpeeds]:
    """The speeds that were measured of the same machine, by number of threads."""
    with suppress(OSError, ValueError):  # those of msgspec among them
        found = msgspec.json.decode(path.read_bytes(), type=_Remembered)
        if found.of == of:
            return found.threads
    return {}


def estimated_profile(own: Profile | None, why: str, threads: int) -> Profile:
    """What is known of this machine, run with ``threads`` CPU threads, where its calibration says nothing of it.

    ``own`` is a calibration that does not hold for the whole machine any more; what holds of it is kept. ``why`` says
    what is wrong with the calibration, as an error that ends in what to run. Accelerators that the catalog does not
    know are left out. Creates no device context. Raises ProfileError where a shipped profile cannot be read.
    """
    facts = machine.fingerprint()
    cpu = _calibrated_cpu(own, facts)
    if cpu is None:
        nearest = nearest_profile(facts)
        cpu = on_other_cpu(nearest, cpu_speeds(facts, nearest, threads), threads=threads)
    others = (_accelerator(accelerator, own, cpu, facts) for accelerator in facts["accelerators"])
    return Profile(
        schema=SCHEMA, created="", fingerprint=facts, samples=(), fits=(*cpu.fits, *(fit for fit in others if fit)),
        noise={}, warnings=(f"an estimate from published measurements, as {why}",),
        complete=True, seconds=0.0, name="estimate", unusable={} if own is None else own.unusable,
    )  # fmt: skip


def nearest_profile(facts: Mapping[str, Any], *, own_class: bool = True) -> Profile:
    """The shipped profile of the machine most like that of a fingerprint; a quiet machine's, where two are equal.

    Without ``own_class`` profiles of the machine's own class are left out: to see how good an estimate is elsewhere.
    Raises ProfileError.
    """
    found = {name: profiles.shipped_facts(name) for name in profiles.shipped()}
    unlike = {name: profiles.dissimilarity(fingerprint, facts) for name, (fingerprint, _) in found.items()}
    allowed = [name for name in found if own_class or unlike[name] >= profiles.SAME_CLASS_WITHIN]
    nearest = min(allowed, key=lambda name: (unlike[name], found[name][1]))
    return profiles.load_cached(profiles.shipped_folder() / f"{nearest}.json")  # a user's profile may have its name


def _calibrated_cpu(own: Profile | None, facts: Mapping[str, Any]) -> Profile | None:
    """The CPU of ``own``, if nothing that it depends on has changed."""
    if own is None or profiles.stale_fields(own, {**facts, "accelerators": ()}):
        return None
    return replace(own, fits=tuple(fit for fit in own.fits if fit.device == "cpu")) if "cpu" in own.devices() else None


def _accelerator(
    accelerator: Mapping[str, Any], own: Profile | None, cpu: Profile, facts: Mapping[str, Any]
) -> DeviceFit | None:
    """The fit of an accelerator: as calibrated, where that holds, or of the catalog; None where nothing is known."""
    device = str(accelerator["device"])
    alone = {**facts, "accelerators": [accelerator]}
    if own is not None and device in own.devices() and not profiles.stale_fields(own, alone):
        return own.fit(device)
    # Only where there is an accelerator: the catalog's model takes time to load.
    from placer.pricing.gpu.catalog_profile import gpu_profile

    try:
        found = gpu_profile(profiles.reported_gpu(accelerator).name, cpu)
    except UnknownGPU:
        return None
    return replace(found.fits[0], device=device, estimated=True)


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
        if not isinstance(source, str) or source.endswith(".json"):
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
