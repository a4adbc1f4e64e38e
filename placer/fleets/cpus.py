"""An unnamed cloud CPU, of which only the number of vCPUs is known."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from placer import profile as profiles
from placer.pricing import COPIED, CpuSpeeds, on_other_cpu
from placer.profile import DeviceFit, Profile

#: The shipped profile that stands for cloud servers: Sapphire Rapids at the clock that all its cores keep. By the data
#: sheets, scalar work takes 1.2 to 1.3 times as long on Cascade Lake and Zen 2, as long on Ice Lake and Zen 3, and 0.85
#: times as long on Zen 4.
SERVER = "intel-xeon-avx512-2-core"
#: Share of its FLOP/s on a core that others have, by clock and vector width: 0.87 Cascade Lake, 0.93 Ice Lake,
#: 0.55 Zen 2 and Zen 3, 0.6 Zen 4. This is their middle.
ARITHMETIC = 0.75
#: Standard deviation of log(seconds) of a step that is bound by arithmetic, over these CPUs.
UNNAMED = 0.25
#: Bytes/s of a socket's memory channels: eight of DDR4-3200, as Ice Lake, Zen 2 and Zen 3 have.
SOCKET = 204.8e9
#: Clouds sell hardware threads, two of a core; torch starts one thread on each core.
VCPUS_PER_CORE = 2


def cpu_class(vcpus: float, memory_gb: float | None = None) -> Profile:
    """What is known of a cloud CPU with ``vcpus`` vCPUs and ``memory_gb`` GiB of memory (None: not known).

    A shipped server's profile, scaled to that many cores (see ``on_other_cpu``): arithmetic by the cores, memory by the
    cores up to what a socket's channels copy, and the start of an op not at all. An odd vCPU is half a core; less than
    one vCPU is that share of a core's time. Which CPU it is, how busy its neighbours are, and what starting an op on
    many cores takes is not known: its provenance is ``published``, and its interval is wider for more cores. Cached.

    Raises ValueError for a number that is not above 0, TypeError for what is no number.
    """
    _check("vcpus", vcpus)
    if memory_gb is not None:
        _check("memory_gb", memory_gb)
    return _class(float(vcpus), None if memory_gb is None else float(memory_gb))


@cache
def _class(vcpus: float, memory_gb: float | None) -> Profile:
    if memory_gb is not None:
        known = _class(vcpus, None)  # its fits, two megabytes, are those of every amount of memory
        return replace(known, fingerprint={**known.fingerprint, "memory_bytes": int(memory_gb * 2**30)})
    server = profiles.load_cached(profiles.shipped_folder() / f"{SERVER}.json")  # a user's profile may have its name
    cores = max(vcpus / VCPUS_PER_CORE, 1.0)
    threads = math.ceil(cores)
    speeds = _speeds(server.fit("cpu", threads), cores, min(vcpus, 1.0))
    called = f"a cloud CPU with {vcpus:g} vCPU{'' if vcpus == 1 else 's'}"
    facts = {
        "cpu": called, "cores": math.ceil(vcpus), "threads": threads, "accelerators": [],
        "torch": server.fingerprint["torch"],
    }  # fmt: skip
    note = f"{called}: a server's measurements, scaled by the number of cores; which CPU it is is not known"
    scaled = on_other_cpu(server, speeds, threads=threads)
    (fit,) = scaled.fits
    wider = {**fit.interval, "base": math.hypot(fit.interval.get("base", 0.0), UNNAMED)}
    return replace(
        scaled, created="", fingerprint=facts, fits=(replace(fit, interval=wider),), warnings=(note,), seconds=0.0,
        name=f"cloud-{vcpus:g}-vcpus",
    )  # fmt: skip


def _speeds(measured: DeviceFit, cores: float, share: float) -> CpuSpeeds:
    """Speeds of so many cores, of which the process gets ``share`` of the time."""
    each = {name: measured.rates[name] / measured.threads for name in ("flops/float32", "bytes_per_second")}
    return CpuSpeeds(
        dispatch_seconds=measured.rates["dispatch_seconds"] / share,
        flops_per_second=share * ARITHMETIC * cores * each["flops/float32"],
        bytes_per_second=share * min(cores * each["bytes_per_second"], COPIED * SOCKET),
    )


def _check(what: str, number: float) -> None:
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"{what} must be a number above 0, not {number!r}")
    if not 0.0 < number < math.inf:
        raise ValueError(f"{what} must be a number above 0, not {number!r}")
