"""What is known, before a calibration, of the machines behind published times; and which rows nothing is chosen by."""

from __future__ import annotations

import zlib
from typing import Protocol

from placer.errors import UnknownGPU
from placer.fleets.machine import VCPUS_PER_CORE, cpu_class
from placer.pricing import gpu_profile
from placer.profile import Profile, find_gpu

#: Cores of a CPU of which nothing is said.
USUAL_CORES = 8


class Measured(Protocol):
    """A published time: its device ("cpu", "mps", "cuda"), the CPU or accelerator, and the CPU of the same machine.

    ``cores`` and ``threads`` are those of ``machine``, 0 where they are not known.
    """

    @property
    def device(self) -> str: ...
    @property
    def machine(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def cores(self) -> int: ...
    @property
    def threads(self) -> int: ...


def profile_of(row: Measured) -> Profile:
    """What is known of a row's machine. Raises UnknownGPU."""
    cores = row.threads or row.cores if row.device == "cpu" else 0
    cpu = cpu_class(VCPUS_PER_CORE * (cores or USUAL_CORES))
    return cpu if row.device == "cpu" else gpu_profile(gpu_name(row), cpu)


def gpu_name(row: Measured) -> str:
    """What the catalog calls a row's GPU; Apple's chips have several numbers of GPU cores. Raises UnknownGPU."""
    name = row.machine.removesuffix(f" {row.cores}-core").replace("(NVLink) ", "")
    if row.device == "mps" and row.cores:
        try:
            return find_gpu(f"{name} ({row.cores}-core GPU)").name
        except UnknownGPU:
            pass
    return find_gpu(name).name


def is_held(name: str) -> bool:
    """Whether nothing may be chosen by a row of this name: every fourth."""
    return zlib.crc32(name.encode()) % 4 == 0
