"""The catalog of GPUs: the data sheet of each, found by the names that people and drivers use."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

from placer.errors import UnknownGPU
from placer.profile.catalog import closest, makers, plain, read_catalog

#: Generations of Apple's GPUs of which ops were published that ran through MPS.
PUBLISHED_MPS = frozenset(("apple7", "apple8", "apple9"))
#: What people leave out of the names of cards: ``4090``, ``7900 XTX``, ``A770``.
_SERIES = re.compile(r"^(?:rtx|gtx|rx|arc)(?=[ab]?\d{3,4}(?!\d))")
#: What ``nvidia-smi -L`` writes around a name.
_LISTED = re.compile(r"^\s*GPU \d+:|\(UUID:[^)]*\)")
#: ``lspci`` writes the chip, then the name in brackets.
_BRACKETED = re.compile(r"\[([^\[\]]+)\]")
_MEMORY = re.compile(r"(?<![a-z0-9])(\d{1,4}) ?(?:gb|gib|g)(?![a-z0-9])")
#: A slice of a card (MIG) as drivers, Kubernetes and Slurm write it: ``... MIG 3g.20gb``, ``..._1g.10gb``. A part of
#: its compute may be named before: ``1c.3g.20gb``.
_SLICE = re.compile(
    r"^(?P<card>.*?)[\s_-]+(?:mig[\s_-]+)?(?:(?P<c>\d)c\.)?(?P<g>\d)g\.(?P<gb>\d+)gb\S*$", re.IGNORECASE
)
#: A virtual GPU: ``T4-16Q`` has 16 GB of a T4; ``A100-3-20C`` is a slice.
_VIRTUAL = re.compile(r"^(?P<card>.*?\S)-(?:(?P<g>\d)-)?(?P<gb>\d+)(?P<kind>[abcq])$", re.IGNORECASE)
#: Figures that a slice has in proportion to its SMs.
_BY_SMS = (
    "float32_tflops", "float64_tflops", "float16_tflops", "tensor_float16_tflops", "tensor_bfloat16_tflops",
    "tensor_tf32_tflops", "watts",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DataSheet:
    """What the maker says of one GPU, as PyTorch sees it: of a card with two GPUs, this is one of them.

    ``name`` is as the driver writes it (``Tesla T4``); ``vendor`` is ``nvidia``, ``amd``, ``intel`` or ``apple``;
    ``compute_capability`` is the gfx name of an AMD GPU, "" elsewhere. ``sms`` are streaming multiprocessors, compute
    units (AMD), Xe cores (Intel) or GPU cores (Apple).

    Rates are peaks at the boost clock, in TFLOP/s; 0 where the GPU has no such units or nobody states the rate. The
    first three are plain arithmetic, without tensor cores; ``tensor_*`` are dense products that add up in float32,
    which is what PyTorch asks for; ``matrix_float32_tflops`` is that of AMD's matrix cores.

    ``last_level_cache_mb`` is a cache between L2 and memory (Infinity Cache, system level cache), 0 where there is
    none; ``pcie_gen`` and ``pcie_lanes`` are 0 where the host is reached by another link. ``integrated``: shares the
    host's memory. ``source`` says where the figures come from, ``unchecked`` which of them no second source confirms.
    """

    name: str
    vendor: str
    architecture: str
    chip: str
    compute_capability: str
    year: int
    sms: int
    boost_mhz: float
    float32_tflops: float
    float64_tflops: float
    float16_tflops: float
    tensor_float16_tflops: float
    tensor_bfloat16_tflops: float
    tensor_tf32_tflops: float
    matrix_float32_tflops: float
    bandwidth_gbps: float
    l2_mb: float
    last_level_cache_mb: float
    memory_gb: float
    pcie_gen: int
    pcie_lanes: int
    watts: float
    integrated: bool
    aliases: tuple[str, ...]
    source: str
    unchecked: tuple[str, ...]


@cache
def gpus() -> Mapping[str, DataSheet]:
    """Every GPU of the catalog by its name, in catalog order: by vendor and family, the usual variant first."""
    sheets = msgspec.convert(read_catalog("gpus.json", "gpus")["gpus"], list[DataSheet])
    return MappingProxyType({sheet.name: sheet for sheet in sheets})


def find_gpu(name: str, *, memory_bytes: int = 0, sms: int = 0) -> DataSheet:
    """The data sheet of the GPU that people or drivers call ``name``: ``A100``, ``rtx4090``, ``Tesla V100-SXM2-32GB``.

    A maker, a memory size or an architecture in the name has to agree with the sheet. Of GPUs that share a name, the
    first one in the catalog is meant, or that with as many SMs and as much memory as the driver reports (0: unknown);
    the sheet's ``name`` says which. Slices (``A100 MIG 3g.20gb``) and virtual GPUs (``GRID T4-16Q``) follow from the
    card's sheet. Raises UnknownGPU, which lists the closest names.
    """
    called = _LISTED.sub(" ", name).strip()
    sheets = _cards(called) or _parts_of_cards(called)
    if not sheets:
        names = {}
        for core, aliases in _aliases().items():
            names[core] = [sheet.name for _, sheet in aliases]
        alike = ", ".join(closest(_read(name).core, names))
        hint = f"the closest are: {alike}; " if alike else ""
        raise UnknownGPU(f"no GPU is called {name!r}; {hint}list them all with: placer gpus")

    def unlike(sheet: DataSheet) -> tuple[bool, float]:
        distance = abs(math.log(memory_bytes / (sheet.memory_gb * 2**30))) if memory_bytes > 0 else 0.0
        return sms > 0 and sheet.sms != sms, distance

    return min(sheets, key=unlike)


def catalog_name(name: str) -> str:
    """What the catalog calls the GPU ``name``; "" where it has none that is called so."""
    try:
        return find_gpu(name).name
    except UnknownGPU:
        return ""


def reported_gpu(facts: Mapping[str, Any]) -> DataSheet:
    """The data sheet of an accelerator as a machine's fingerprint describes it. Raises UnknownGPU."""
    memory, sms = (int(facts.get(name) or 0) for name in ("memory_bytes", "sms"))
    return find_gpu(str(facts.get("name") or ""), memory_bytes=memory, sms=sms)


def knowledge(name: str) -> str:
    """What predictions for a GPU of the catalog rest on: ``published (N rows)``, or of MPS alike, or ``data sheet``."""
    if name in gpus() and gpus()[name].architecture in PUBLISHED_MPS:
        return "published (MPS)"
    rows = read_catalog("published.json")["rows"].get(name, 0)  # behind the fitted numbers of that GPU
    return f"published ({rows:,} rows)" if rows else "data sheet"


# --- the names of cards -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Name:
    """A name in parts: two names of one GPU have the same ``core``, and what else they say agrees with its sheet."""

    core: str
    memory_gb: frozenset[int]
    architectures: frozenset[str]
    makers: frozenset[str]

    def means(self, sheet: DataSheet, alias: _Name) -> bool:
        """Whether this may be the GPU of ``sheet``, which has a name ``alias`` with this core."""
        # Of memory that is shared with the host, the sheet has the most there is, unless it is one size of several.
        least = 0.0 if sheet.integrated and not _MEMORY.search(sheet.name.lower()) else sheet.memory_gb - 0.5
        sizes = all(least <= size <= sheet.memory_gb + 0.5 for size in self.memory_gb - alias.memory_gb)
        architectures = self.architectures <= {sheet.architecture, *alias.architectures}
        return sizes and architectures and self.makers <= {sheet.vendor}


def _read(name: str) -> _Name:
    words, text = read_catalog("gpus.json", "gpus")["words"], plain(name)
    name_words = _MEMORY.sub(" ", text).split()
    architectures = _architectures().intersection(name_words)
    left_out = {*words["noise"], *architectures}
    core = "".join(words["same"].get(word, word) for word in name_words if word not in left_out)
    return _Name(core, frozenset(map(int, _MEMORY.findall(text))), architectures, makers(name, words))


@cache
def _architectures() -> frozenset[str]:
    return frozenset(sheet.architecture for sheet in gpus().values())


@cache
def _aliases() -> Mapping[str, list[tuple[_Name, DataSheet]]]:
    """All names of the catalog by their cores, also by those without a series, in catalog order."""
    by_core: dict[str, list[tuple[_Name, DataSheet]]] = {}
    for sheet in gpus().values():
        for text in (sheet.name, *sheet.aliases):
            name = _read(text)
            for core in {name.core, _SERIES.sub("", name.core)}:
                by_core.setdefault(core, []).append((name, sheet))
    return by_core


def _called(text: str) -> list[DataSheet]:
    """The GPUs that a name may mean: first those that say the same beside its core, else in catalog order."""
    name = _read(text)
    wanted = (name.memory_gb, name.architectures)
    meant = [(alias, sheet) for alias, sheet in _aliases().get(name.core, ()) if name.means(sheet, alias)]
    same = [sheet for alias, sheet in meant if wanted == (alias.memory_gb, alias.architectures)]
    return list(dict.fromkeys([*same, *(sheet for _, sheet in meant)]))


def _cards(text: str) -> list[DataSheet]:
    """The GPUs that a name may mean, which may stand in brackets; of ``MI60 / MI50`` those of either."""
    bracketed = _BRACKETED.findall(text)
    for name in (text, *bracketed):
        if sheets := _called(name):
            return sheets
    either: list[DataSheet] = []
    for name in "/".join(bracketed or [text]).split("/"):
        either += _called(name)
    return list(dict.fromkeys(either))


# --- parts of cards ---------------------------------------------------------------------------------------------------


def _parts_of_cards(name: str) -> list[DataSheet]:
    """The slices or virtual GPUs that ``name`` may mean."""
    virtual = _VIRTUAL.match(name)
    part = _SLICE.match(name) or virtual
    if part is None:
        return []
    card, compute, memory_gb = part["card"], int(part["g"] or 0), int(part["gb"])
    if not compute and part is virtual:
        return [_virtual(sheet, memory_gb, part["kind"]) for sheet in _cards(card)]
    backing = _VIRTUAL.match(card)  # H100L-1-12C MIG 1g.12gb
    used = int(part.groupdict().get("c") or compute)
    slices = [_slice(sheet, compute, memory_gb, used) for sheet in _cards(backing["card"] if backing else card)]
    return [sheet for sheet in slices if sheet is not None]


def _virtual(sheet: DataSheet, memory_gb: int, kind: str) -> DataSheet:
    """A virtual GPU: the card's arithmetic, which others may share, and the memory in its name ("0": 512 MB)."""
    memory = min(memory_gb or 0.5, sheet.memory_gb)
    return replace(sheet, name=f"{sheet.name}-{memory_gb}{kind.upper()}", memory_gb=float(memory), aliases=())


def _slice(sheet: DataSheet, compute: int, memory_gb: int, used: int) -> DataSheet | None:
    """A slice of a card: arithmetic and power by its SMs, bandwidth and L2 by its memory. None where there is none.

    ``used`` of its ``compute`` slices are granted.
    """
    chips = read_catalog("gpus.json", "gpus")["slices"]
    whole, eighths = chips["most"].get(sheet.chip, 0), round(8 * memory_gb / sheet.memory_gb)
    named = abs(memory_gb - sheet.memory_gb * eighths / 8) < 1  # names round the memory up
    if not named or not 0 < used <= compute <= whole:
        return None
    shape = f"{compute}/{eighths}"
    listed = chips["sms"].get(f"{sheet.chip}/{sheet.sms}", {shape: sheet.sms * compute // whole})
    slice_sms = listed.get(shape, 0) * used // compute
    if not slice_sms:
        return None
    name = f"{f'{used}c.' if used < compute else ''}{compute}g.{memory_gb}gb"
    return replace(
        sheet,
        name=f"{sheet.name} MIG {name}",
        sms=slice_sms,
        memory_gb=float(memory_gb),
        **{field: round(getattr(sheet, field) * slice_sms / sheet.sms, 4) for field in _BY_SMS},
        aliases=(),
        bandwidth_gbps=sheet.bandwidth_gbps * eighths / 8,
        l2_mb=sheet.l2_mb * eighths / 8,
        source=f"{sheet.source}; NVIDIA's MIG user guide, nvidia-smi: shares of SMs, memory and L2",
    )
