"""The catalog of CPUs: what is known of each, found by the names that people, systems and clouds use."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

from placer.errors import UnknownCPU
from placer.profile.catalog import closest, makers, plain, read_catalog
from placer.profile.cores import THREAD_SECONDS

USUAL_KIND = "x86-avx512"
#: ``2x``, ``13th Gen``, ``64-Core``, the series before a number (``Ryzen 9 5950X``, ``Core i9-10940X``), and "PRO",
#: AMD's chip for firms; Apple's "Pro" is another chip.
_DROPPED = re.compile(
    r"^\d+ ?x (?=[a-z])|\b\d+(?:st|nd|rd|th) gen\b|\b\d+ core\b|(?:\bultra|\bryzen(?: ai)?) [3579]\b"
    r"|\bi[3579](?= [0-9])|(?<!\bm\d )\bpro\b"
)
#: What follows the model: a clock, graphics, a remark.
_AFTER = re.compile(r"\s(?:@|w/|with\b|\([^()]*\)$).*")
#: How clouds write sizes.
_AWS = re.compile(
    r"^(?P<family>[a-z][\w-]*)\.(?P<size>nano|micro|small|medium|large|(?P<n>\d*)xlarge|metal(?:-(?P<xl>\d+)xl)?)$"
)
_GOOGLE = re.compile(r"^(?P<family>[a-z]\d+[a-z]?-)[a-z]+-(?:(?P<n>\d+)|\d+g)$")
_AZURE = re.compile(r"^(?:standard_)?(?P<letters>[a-z]+)(?P<n>\d+)(?P<rest>[a-z]*(?:_[a-z]+\d+)?_v\d+)$")
#: vCPUs of the sizes of AWS from xlarge on; the smaller ones have 2, or one core.
_VCPUS_PER_XLARGE = 4


@dataclass(frozen=True, slots=True)
class CpuKind:
    """What CPUs of a kind have in common besides their data sheets, with the libraries that torch comes with for them.

    ``profile``: the shipped profile whose core stands for one of this kind. ``start_cycles``: cycles in which a core
    starts an op. ``reached``: share of a core's peak FLOP/s that large float32 products reach in its vectors.
    ``multiplies``: times as many that they reach where a unit of their own multiplies. ``register_bytes``: of a vector
    register. ``region_start`` and ``region_per_thread``: seconds to start a loop on several cores, and more for each
    of them. ``scaling``: p threads are p to this power times as fast as one. ``copied``: bytes/s that one core copies
    between main memory, read and written. ``thread_seconds``: to end a thread and make another one, as GNU's OpenMP
    does. ``unfolds``: torch has no oneDNN for it. Results of ``fresh_from`` bytes and more take memory that the system
    gives page by page, at ``fresh`` bytes/s to all cores together (None: as ``physics.fresh_seconds`` has it).
    """

    name: str
    profile: str
    start_cycles: float
    reached: float
    register_bytes: int
    region_start: float
    region_per_thread: float
    scaling: float
    copied: float
    source: str
    multiplies: float = 1.0
    thread_seconds: float = THREAD_SECONDS
    unfolds: bool = False
    fresh_from: float | None = None
    fresh: float | None = None

    def region_seconds(self, threads: int) -> float:
        """Seconds to start a loop on so many threads; 0 on one."""
        return self.region_start + self.region_per_thread * threads if threads > 1 else 0.0


@dataclass(frozen=True, slots=True)
class CpuSheet:
    """What is known of one CPU, of one socket.

    ``kind`` names a ``CpuKind``; no row is of ``apple``: with Accelerate, Apple's CPUs multiply in another unit.
    ``cores`` are physical; of a CPU with two kinds of cores, the faster ones, which the other figures are of.
    ``clock_ghz`` is what all cores keep under vector load; ``source`` says how it was chosen where the maker gives
    only base and turbo. ``flops_per_cycle``: float32, of one core, a multiply-add is two. ``l2_bytes`` is a core's
    share; ``l3_bytes`` the whole socket's last cache (Apple: system level cache); ``bytes_per_second`` the peak of
    the memory channels. ``instances`` are the families of cloud instances that have it, up to what says their size:
    ``c5`` (AWS), ``n1-`` (Google), ``ncs_v3`` (Azure, without number).
    """

    name: str
    kind: str
    cores: int
    clock_ghz: float
    flops_per_cycle: float
    l2_bytes: int
    l3_bytes: int
    bytes_per_second: float
    source: str
    aliases: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """A cloud instance type: its CPU, its vCPUs (0: the name does not say), and how many of these share a core."""

    sheet: CpuSheet
    vcpus: int
    vcpus_per_core: int


def _document() -> Mapping[str, Any]:
    return read_catalog("cpus.json", "cpus", "kinds")


@cache
def cpu_kinds() -> Mapping[str, CpuKind]:
    """Every kind of CPU by its name."""
    kinds = msgspec.convert(_document()["kinds"], list[CpuKind])
    return MappingProxyType({kind.name: kind for kind in kinds})


@cache
def cpus() -> Mapping[str, CpuSheet]:
    """Every CPU of the catalog by its name, in catalog order: by maker and generation."""
    sheets = msgspec.convert(_document()["cpus"], list[CpuSheet])
    return MappingProxyType({sheet.name: sheet for sheet in sheets})


def kind_of(facts: Mapping[str, Any]) -> CpuKind:
    """The kind of the CPU of a machine's fingerprint: of its sheet, else by its name and vector instructions."""
    name, words = str(facts.get("cpu", "")), _document()["words"]
    for called in (f"{name} {facts.get('cpu_version', '')}", name):
        with suppress(UnknownCPU):
            return cpu_kinds()[find_cpu(called).kind]
    by_name = next((kind for word, kind in words["kinds"].items() if word in name.lower()), "")
    return cpu_kinds()[by_name or words["instructions"].get(str(facts.get("cpu_instructions")), USUAL_KIND)]


def find_cpu(name: str) -> CpuSheet:
    """What is known of the CPU that people, a system or a cloud call ``name``.

    ``Xeon 8375C``, ``AMD EPYC 7R13 Processor``, ``i9-10940X``, ``M4 Max``, ``Graviton4``; and the CPU of an instance
    type: ``c5.12xlarge``. Of two CPUs with one name, the first in the catalog is meant. Raises UnknownCPU, which lists
    the closest names.
    """
    instance = find_instance(name)
    if instance is not None:
        return instance.sheet
    spelling, named_makers = _spelling(name), makers(name, _document()["words"])
    for sheet in _aliases().get(spelling, ()):
        if named_makers <= {sheet.name.split()[0].lower()}:
            return sheet
    names = {}
    for other, sheets in _aliases().items():
        names[other] = [sheet.name for sheet in sheets]
    alike = ", ".join(closest(spelling, names))
    raise UnknownCPU(f"no CPU is called {name!r}" + (f"; the closest are: {alike}" if alike else ""))


@cache
def _aliases() -> Mapping[str, list[CpuSheet]]:
    """The CPUs by all their names as ``_spelling`` writes them."""
    spelt: dict[str, list[CpuSheet]] = {}
    for sheet in cpus().values():
        for spelling in {_spelling(name) for name in (sheet.name, *sheet.aliases)}:
            spelt.setdefault(spelling, []).append(sheet)
    return spelt


def _spelling(name: str) -> str:
    """What tells one CPU from another: ``Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz`` is ``8375c``."""
    words = _DROPPED.sub(" ", plain(_AFTER.sub("", name.strip()))).split()
    return "".join(word for word in words if word not in _document()["words"]["noise"])


# --- instances of clouds ----------------------------------------------------------------------------------------------


def find_instance(name: str) -> Instance | None:
    """The instance type of a cloud that ``name`` is; None where it is none, or its CPU is not known.

    A remark in brackets after it may be there: ``m8g.4xlarge (Graviton4)``. A family alone, in small letters (``m5``;
    ``M5`` is an Apple), says no size.
    """
    called = _AFTER.sub("", name.strip().lower())
    match = _AWS.match(called) or _GOOGLE.match(called) or _AZURE.match(called)
    size: Mapping[str, str | None] = match.groupdict() if match else {}
    family = size.get("family") or f"{size.get('letters')}{size.get('rest')}"
    if name in _families():
        family, size = name, {}
    sheet = _families().get(family)
    if sheet is None:
        return None
    single = sheet.kind == "arm" or family in _document()["one_vcpu_per_core"]
    per_core = 1 if single else 2
    return Instance(sheet, _document()["vcpus"].get(called) or _vcpus(size, per_core), per_core)


@cache
def _families() -> Mapping[str, CpuSheet]:
    """The CPU of each family of instances."""
    return {family: sheet for sheet in cpus().values() for family in sheet.instances}


def _vcpus(size: Mapping[str, str | None], per_core: int) -> int:
    """vCPUs by the parts of an instance type's name; 0 where they do not say."""
    named = size.get("size")
    if named is None:
        return int(size.get("n") or 0)
    if named.endswith("xlarge"):
        return _VCPUS_PER_XLARGE * int(size["n"] or 1)
    if named.startswith("metal"):
        return _VCPUS_PER_XLARGE * int(size["xl"] or 0)
    return per_core if named == "medium" else 2


def named_cores(name: str, count: float | None = None) -> tuple[CpuSheet, int]:
    """The CPU that ``name`` means, and the number of its cores that are used.

    ``count`` are cores, or vCPUs where ``name`` is an instance type. None: those that the type's name says, else all of
    a socket. Raises UnknownCPU, and ValueError for a count that is not above 0.
    """
    instance, sheet = find_instance(name), find_cpu(name)
    if count is None:
        if instance is None or not instance.vcpus:
            return sheet, sheet.cores
        count = instance.vcpus
    if not 0.0 < count < math.inf:
        raise ValueError(f"the cores of {name} must be a number above 0, not {count!r}")
    return sheet, math.ceil(count / (1 if instance is None else instance.vcpus_per_core))
