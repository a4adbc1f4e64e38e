"""A machine that work could run on, or many of one kind: what is known of it, and what it costs; and cloud CPUs."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache

from placer.decision import current_profile, profile_named
from placer.errors import UnknownCPU
from placer.lazy import cached_property
from placer.pricing import cpu_profile, gpu_profile
from placer.profile import Profile, find_cpu, named_cores, uncalibrated

#: The CPU of the catalog that stands for cloud servers: Ice Lake, in the middle of what clouds sell. By the data sheets
#: the same arithmetic takes 1.1 times as long on Cascade Lake, 1.6 on Zen 2 to 4, and 0.95 on Sapphire Rapids.
SERVER = "Xeon Platinum 8375C"
#: Standard deviation of log(seconds) of a step that is bound by arithmetic, over these CPUs.
UNNAMED = 0.25
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
    host = cpu or current_profile()
    profile = profile_named(text, host)
    gpu = next((fit.gpu for fit in profile.fits if fit.gpu and not fit.families), "")
    if gpu and "cpu" not in profile.devices():
        return gpu_beside(gpu, host)
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
        return cpu_profile(*named_cores(name, count))
    except UnknownCPU:
        if count is None:
            raise
        return cpu_class(count)


@lru_cache(maxsize=None, typed=True)
def cpu_class(vcpus: float, memory_gb: float | None = None) -> Profile:
    """What is known of a cloud CPU with ``vcpus`` vCPUs and ``memory_gb`` GiB of memory (None: not known).

    So many cores of a server in the middle of what clouds sell (``SERVER``). An odd vCPU is half a core; less than one
    vCPU is that share of a core's time. Which CPU it is, how busy its neighbours are, and what starting an op on many
    cores takes is not known: its provenance is ``published``, and its interval is wider for it. Cached.

    Raises ValueError for a number that is not above 0, TypeError for what is no number.
    """
    for what, number in (("vcpus", vcpus), ("memory_gb", 1.0 if memory_gb is None else memory_gb)):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"{what} must be a number above 0, not {number!r}")
        if not 0.0 < number < math.inf:
            raise ValueError(f"{what} must be a number above 0, not {number!r}")
    cores = max(vcpus / VCPUS_PER_CORE, min(vcpus, 1.0))
    server = cpu_profile(find_cpu(SERVER), cores)
    called = f"a cloud CPU with {vcpus:g} vCPU{'' if vcpus == 1 else 's'}"
    facts = {**server.fingerprint, "cpu": called, "cores": math.ceil(vcpus)}
    if memory_gb is not None:
        facts["memory_bytes"] = int(memory_gb * 2**30)
    note = f"{called}: a server's measurements, scaled by the number of cores; which CPU it is is not known"
    (fit,) = server.fits
    wider = {**fit.interval, "base": math.hypot(fit.interval.get("base", 0.0), UNNAMED)}
    return uncalibrated([replace(fit, interval=wider)], facts, f"cloud-{vcpus:g}-vcpus", [note])
