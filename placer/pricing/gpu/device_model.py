"""Seconds of an op's kernels on a GPU that nobody measured here, by its data sheet and what others published.

    seconds = kernels x launch + physics x exp(learnt), as far as that is believed

The physics are in ``physics``, the learnt part is a small network per kind of kernel (``networks``), fitted by
``placer.calibration.lab.published`` to published operator and step times. They come in one file, which also says which
kernels it holds rows of: by GPU, dtype and size. Without a network the physics stand alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from placer.lazy import cached_property
from placer.pricing.gpu.apple import AppleModel
from placer.pricing.gpu.physics import COLUMNS, Row, inputs, kernel_seconds, rows_of
from placer.pricing.networks import Array, Network, read_network
from placer.pricing.physics import TF32, allows_tf32, has_physics
from placer.pricing.prediction import SIGMA, SOURCES, Provenance, Source, weakest
from placer.pricing.shapes import FAMILIES, Switch
from placer.pricing.shapes.shape import Work
from placer.profile import DataSheet, find_gpu, gpus

#: The fitted numbers that come with placer.
FILE = Path(__file__).parents[2] / "profile" / "catalog" / "published.json"


@cache
def document() -> Mapping[str, Any]:
    """The file as it is: ``edition``, ``rows``, ``ranges`` and ``networks``; without the file, none of them."""
    read: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    return read


def edition() -> int:
    """A number that changes whenever the fitted networks do; 0 without any."""
    return int(document().get("edition", 0))


def row_name(row: Row) -> str:
    """What ranges are kept under: the label, and what a convolution computes, for which it has kernels of their own."""
    if row.kind not in ("convolution", "depthwise"):
        return row.label
    of = dict(zip(COLUMNS[row.kind], row.columns, strict=True))
    computes = "input" if of["to_input"] else "weight" if of["to_weight"] else "forward"
    return f"{row.label}:{computes}"


def row_size(row: Row) -> float:
    """log2 of FLOPs and bytes together."""
    flops, moved, *_ = row.columns
    return math.log2(max(flops + moved, 1.0))


def has_rows(gpu: str, row: Row, dtype: str) -> bool:
    """Whether rows of this name and dtype were published of this GPU, with sizes around this one."""
    ranges = document().get("ranges", {}).get(gpu, {}).get(row_name(row), {})
    low, high = ranges.get(dtype, (math.inf, -math.inf))
    return bool(low <= row_size(row) <= high)


#: log(seconds / physics) of an op that was hardly published, and its standard deviation.
USUAL, UNTRIED_SIGMA = 0.2, 0.5
#: How much of what was learnt of an op is believed at the least where its price counts as learnt: as after one row.
LEARNT_FROM = 0.1
#: Sources of prices whose doubt held-out rows tell.
_BY_ROWS: frozenset[Source] = frozenset(("published", "learnt"))


@cache
def networks() -> Mapping[str, Network]:
    """The networks that come with placer, by kind."""
    return {kind: read_network(fields) for kind, fields in document().get("networks", {}).items()}


def learnt_of(network: Network, x: Array, labels: Sequence[str], gpu: str) -> tuple[Array, Array]:
    """(log of measured over physics, standard deviation of what is not believed of it) of n rows, for n x d inputs.

    An op that nobody published is priced as its family, a GPU as all of them.
    """
    row_labels = [known_label(network, label) for label in labels]
    numbers = network.devices.get(gpu, np.zeros(network.device_numbers))
    trust = np.array([network.trust.get(label, 0.0) for label in row_labels])
    learnt = USUAL + trust * (network.learnt(x, row_labels, numbers) - USUAL)
    return learnt, (1.0 - trust) * UNTRIED_SIGMA


def known_label(network: Network, label: str) -> str:
    """The label itself where it was published, else its family's, else any op's."""
    family = f"{label.partition(':')[0]}:"
    return label if label in network.labels else family if family in network.labels else ""


#: Times its floor that a concatenation takes at the most, as it only copies: networks that saw few of a dtype on other
#: GPUs say up to eight (docs/dev/findings.md).
_CONCATENATION, _MOST_OF_A_COPY = "elementwise:cat", 2.0
#: The switch of TF32 that each kind of row obeys: that of its family.
_SWITCHES: Mapping[str, Switch | None] = {
    **{family.kernels: family.switch for family in FAMILIES.values() if family.kernels != "memory"},
    "depthwise": "conv",
}


class DeviceModel:
    """Prices the kernels of ops on one GPU of the catalog."""

    def __init__(self, sheet: DataSheet) -> None:
        self.sheet, self.edition = sheet, edition()

    @cached_property
    def provenance(self) -> Provenance:
        """``published`` where operators or steps were measured on this GPU by others, else ``data sheet``."""
        published = any(self.sheet.name in network.devices for network in networks().values())
        return "published" if published else "data sheet"

    def price(self, works: Sequence[Work]) -> tuple[list[float], list[float], list[Source]]:
        """Seconds, standard deviation of log(seconds) and source of each work: the weakest of its rows'."""
        rows: list[tuple[int, Row]] = []
        for i, work in enumerate(works):
            rows += [(i, row) for row in rows_of(work)]
        groups: dict[tuple[str, str], list[tuple[int, Row]]] = {}
        for i, row in rows:
            groups.setdefault((row.kind, row.dtype), []).append((i, row))
        seconds, errors = [0.0] * len(works), [0.0] * len(works)
        sources: list[Source] = [SOURCES[0]] * len(works)
        for (kind, _), members in groups.items():
            dtype = self._dtype(members[0][1])
            row_sources = [self.source(row, dtype, physics=has_physics(works[i])) for i, row in members]
            prices, sigma = self.price_rows(kind, dtype, [row for _, row in members], row_sources)
            for (i, _), price, error, source in zip(members, prices.tolist(), sigma.tolist(), row_sources, strict=True):
                seconds[i] += price
                errors[i] += price * error
                sources[i] = weakest((sources[i], source))
        sigmas = [error / price if price else 0.0 for price, error in zip(seconds, errors, strict=True)]
        return seconds, sigmas, sources

    def source(self, row: Row, dtype: str, *, physics: bool) -> Source:
        """What the price of a row in ``dtype`` rests on. ``physics``: it is known what the row's op does."""
        if has_rows(self.sheet.name, row, dtype):
            return "published"
        network = networks().get(row.kind)
        if network is not None and self._is_of_a_kind(row.kind) and network.trust.get(row.label, 0.0) >= LEARNT_FROM:
            return "learnt"
        return "physics" if physics else "guess"

    def _is_of_a_kind(self, kind: str) -> bool:
        """Whether rows of the kind were published of any GPU of this maker: others have libraries of their own."""
        sheets = gpus()
        return any(sheets[name].vendor == self.sheet.vendor for name in networks()[kind].devices if name in sheets)

    def price_rows(self, kind: str, dtype: str, rows: Sequence[Row], sources: Sequence[Source]) -> tuple[Array, Array]:
        """(seconds, standard deviation of log(seconds)) of rows of one kind, in ``dtype``, and their ``sources``."""
        columns: Array = np.array([row.columns for row in rows])
        floor, x = inputs(kind, columns, dtype, self.sheet)
        network = networks().get(kind)
        if network is None:
            return kernel_seconds(kind, floor, np.zeros(len(rows))), np.array([SIGMA[source] for source in sources])
        labels = [row.label for row in rows]
        learnt, doubt = learnt_of(network, x, labels, self.sheet.name)
        most = np.array([_MOST_OF_A_COPY if label == _CONCATENATION else np.inf for label in labels])
        sigma = []
        for label, source, row_doubt in zip(labels, sources, doubt.tolist(), strict=True):
            of_known, of_others = network.sigma_of(label)
            by_rows = math.hypot(of_known if source == "published" else of_others, row_doubt)
            sigma.append(by_rows if source in _BY_ROWS else SIGMA[source])
        return kernel_seconds(kind, floor, np.minimum(learnt, np.log(most))), np.array(sigma)

    def _dtype(self, row: Row) -> str:
        """The row's dtype, or ``tf32`` where this process lets tensor cores multiply float32."""
        if row.dtype != "float32" or not self.sheet.tensor_tf32_tflops or self.sheet.vendor != "nvidia":
            return row.dtype
        switch = _SWITCHES.get(row.kind)
        return TF32 if switch is not None and allows_tf32(switch) else row.dtype


@lru_cache(maxsize=16)
def device_model(gpu: str) -> DeviceModel | AppleModel:
    """The model of a GPU by any name the catalog finds. Raises UnknownGPU."""
    sheet = find_gpu(gpu)
    return AppleModel(sheet) if sheet.vendor == "apple" else DeviceModel(sheet)
