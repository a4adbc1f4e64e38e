"""What is known, before a calibration, of the machines behind published times; and which rows nothing is chosen by."""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from functools import cache
from typing import Protocol

from placer.errors import UnknownCPU, UnknownGPU
from placer.fleets import cpu_class
from placer.pricing import FRESH_FROM, gpu_profile
from placer.pricing import cpu_profile as catalog_profile
from placer.profile import Profile, find_gpu, named_cores

#: Cores of a CPU that the catalog does not know.
USUAL_CORES = 8
#: Sources that do not say how their torch was built, and those of their tables whose products run in Accelerate: a
#: batch of 1,000 of 64 x 1,024 x 32 at 160 to 354 GFLOP/s. In the others it runs at 7 to 123.
BY_ACCELERATE_OR_NOT = ("mlx-benchmark", "chsasank/device-benchmarks")
BY_ACCELERATE = frozenset((
    ("Apple M1 Max", "2024-02-15"), ("Apple M1 Ultra", "2026-03-08"), ("Apple M2 Max", "2024-03-04"),
    ("Apple M2 Ultra", "2024-03-20"), ("Apple M3", "2026-01-04"), ("Apple M4 Pro", "2025-04-10"),
))  # fmt: skip
#: Sources whose processes run with jemalloc, which keeps memory that glibc would give back.
BY_JEMALLOC = ("pytorch operator_benchmark", "pytorch inductor CPU")


class Measured(Protocol):
    """A published time: its device ("cpu", "mps", "cuda"), the CPU or accelerator, and the CPU of the same machine.

    ``cores`` and ``threads`` are those of ``machine``, 0 where they are not known.
    """

    @property
    def source(self) -> str: ...
    @property
    def date(self) -> str: ...
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
    if row.device == "cpu":
        slower = row.source.startswith(BY_ACCELERATE_OR_NOT) and (row.machine, row.date) not in BY_ACCELERATE
        profile = cpu_profile(row.machine, row.threads, accelerate=not slower)
        return _keeping_memory(profile) if row.source.startswith(BY_JEMALLOC) else profile
    return gpu_profile(gpu_name(row), cpu_profile(row.host, 0))


@cache
def cpu_profile(name: str, threads: int, *, accelerate: bool = True) -> Profile:
    """What is known of a CPU by its name, run with so many threads; 0: all cores of a socket.

    ``accelerate``: torch multiplies with Accelerate on Apple's.
    """
    try:
        sheet, cores = named_cores(name)
    except UnknownCPU:
        return cpu_class(2.0 * (threads or USUAL_CORES))  # two vCPUs of a core
    if sheet.kind == "apple-accelerate" and not accelerate:
        sheet = replace(sheet, kind="apple")
    return catalog_profile(sheet, threads or cores)


def _keeping_memory(profile: Profile) -> Profile:
    """The profile where the allocator keeps the memory of large results."""
    (fit,) = profile.fits
    return replace(profile, fits=(replace(fit, rates={**fit.rates, FRESH_FROM: math.inf}),))


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
