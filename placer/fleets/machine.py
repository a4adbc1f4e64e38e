"""A machine that work could run on, or many of one kind: what is known of it, and what it costs; and cloud CPUs."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cache

from placer.decision import current_profile, profile_named
from placer.errors import UnknownCPU
from placer.lazy import cached_property
from placer.pricing import CLASSES, COPIED, CpuSpeeds, gpu_profile, on_other_cpu, on_sheet
from placer.profile import Profile, load_cached, named_cores, shipped_folder

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


@dataclass(frozen=True, eq=False)
class Machine:
    """A machine, or ``count`` of them that are alike.

    Args:
        name: what to call it: a node, an instance type, a GPU.
        profile: of its CPU, and of the accelerators that were calibrated on it.
        gpu: a GPU of the catalog that is in it, where the profile has no accelerator; "" for none.
        devices: compare these only (``("cuda",)``); None: all it has.
        price: dollars per hour of the whole machine; None: not known.
        count: how many there are.
        note: what a reader should know of it.
        priced: the day of the catalog that the price is from; "" for one that was given.

    Raises:
        ValueError: a price or a count that is not above 0.
        UnknownGPU: the catalog has no such GPU.
    """

    name: str
    profile: Profile
    gpu: str = ""
    devices: tuple[str, ...] | None = None
    price: float | None = None
    count: int = 1
    note: str = ""
    priced: str = ""

    def __post_init__(self) -> None:
        if self.price is not None and not 0.0 < self.price < math.inf:
            raise ValueError(f"the price of {self.name} must be dollars per hour above 0, not {self.price!r}")
        if self.count < 1:
            raise ValueError(f"the count of {self.name} must be at least 1, not {self.count!r}")
        if self.gpu:
            _ = self.accelerated  # an unknown GPU is told now

    @property
    def kind(self) -> Hashable:
        """Equal for machines that are priced alike."""
        return id(self.profile), self.gpu, self.devices

    @cached_property
    def accelerated(self) -> Profile:
        """The profile of its accelerators: its own, or that of its GPU beside its CPU."""
        return gpu_profile(self.gpu, self.profile) if self.gpu else self.profile

    @property
    def sources(self) -> tuple[tuple[str, Profile], ...]:
        """Its devices, each with the profile that prices it."""
        devices = [(name, self.profile) for name in self.profile.devices() if name == "cpu" or not self.gpu]
        if self.gpu:
            devices += [(name, self.accelerated) for name in self.accelerated.devices()]
        return tuple((name, profile) for name, profile in devices if self.devices is None or name in self.devices)


def machine_named(text: str, cpu: Profile | None = None) -> Machine:
    """A machine by the path or name of its profile; else a GPU of the catalog beside the CPU of ``cpu``; else a CPU.

    ``cpu`` None is this machine's. A CPU of the catalog has all cores of a socket, an instance type of a cloud
    (``c5.12xlarge``) those of its vCPUs. Raises ProfileError, UnknownGPU where nothing is called so.
    """
    beside = cpu or current_profile()
    profile = profile_named(text, beside)
    gpu = next((fit.gpu for fit in profile.fits if fit.gpu and not fit.families), "")
    if gpu and "cpu" not in profile.devices():
        return gpu_beside(gpu, beside)
    note = f"calibrated {profile.created[:10]}" if profile.created else "; ".join(profile.warnings)
    return Machine(text, profile, note=note)


def gpu_beside(gpu: str, cpu: Profile) -> Machine:
    """A GPU of the catalog, driven by that CPU, which itself is not compared. Raises UnknownGPU."""
    return Machine(gpu, cpu, gpu=gpu, devices=gpu_profile(gpu, cpu).devices())


def cpu_called(name: str, count: float | None = None) -> Profile:
    """What is known of a CPU of the catalog with ``count`` cores, or of an instance type with ``count`` vCPUs.

    None: all cores of a socket, or the vCPUs that the type's name says. Of a name that is neither, a cloud CPU with
    ``count`` vCPUs (``cpu_class``). Raises ValueError for a number that is not above 0, UnknownCPU without one.
    """
    try:
        return on_sheet(*named_cores(name, count))
    except UnknownCPU:
        if count is None:
            raise
        return cpu_class(count)


def cpu_class(vcpus: float, memory_gb: float | None = None) -> Profile:
    """What is known of a cloud CPU with ``vcpus`` vCPUs and ``memory_gb`` GiB of memory (None: not known).

    A shipped server's profile, scaled to that many cores (see ``on_other_cpu``): arithmetic by the cores, memory by the
    cores up to what a socket's channels copy, and the start of an op not at all. An odd vCPU is half a core; less than
    one vCPU is that share of a core's time. Which CPU it is, how busy its neighbours are, and what starting an op on
    many cores takes is not known: its provenance is ``published``, and its interval is wider for more cores. Cached.

    Raises ValueError for a number that is not above 0, TypeError for what is no number.
    """
    for what, number in (("vcpus", vcpus), ("memory_gb", 1.0 if memory_gb is None else memory_gb)):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"{what} must be a number above 0, not {number!r}")
        if not 0.0 < number < math.inf:
            raise ValueError(f"{what} must be a number above 0, not {number!r}")
    return _class(float(vcpus), None if memory_gb is None else float(memory_gb))


@cache
def _class(vcpus: float, memory_gb: float | None) -> Profile:
    if memory_gb is not None:
        without_memory = _class(vcpus, None)  # its fits, two megabytes, are those of every amount of memory
        memory = {"memory_bytes": int(memory_gb * 2**30)}
        return replace(without_memory, fingerprint={**without_memory.fingerprint, **memory})
    server = load_cached(shipped_folder() / f"{SERVER}.json")  # a user's profile may have its name
    cores, share = max(vcpus / VCPUS_PER_CORE, 1.0), min(vcpus, 1.0)
    threads = math.ceil(cores)
    measured, kind = server.fit("cpu", 1), CLASSES["x86-avx512"]
    flops, moved = share * ARITHMETIC * measured.rates["flops/float32"], share * kind.copied
    speeds = CpuSpeeds(
        dispatch_seconds=measured.rates["dispatch_seconds"] / share,
        flops_per_second=flops * cores**kind.scaling,
        bytes_per_second=min(cores * moved, COPIED * SOCKET),
        core_flops_per_second=flops,
        core_bytes_per_second=moved,
        region_seconds=kind.region_seconds(threads),
    )
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
