"""The catalog of GPUs: the data sheet of each, found by the names people and drivers use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from placer.errors import UnknownGPU
from placer.profile.data_sheet import DataSheet
from placer.profile.gpu_names import Names

_CATALOG = Path(__file__).parent / "catalog" / "gpus.json"
_PUBLISHED = _CATALOG.with_name("published.json")


@cache
def gpus() -> Mapping[str, DataSheet]:
    """Every GPU of the catalog by its name, in catalog order: by vendor and family, the usual variant first."""
    document = json.loads(_CATALOG.read_text(encoding="utf-8"))
    sheets = (_sheet(row, document["sources"]) for row in document["gpus"])
    return MappingProxyType({sheet.name: sheet for sheet in sheets})


def find_gpu(name: str) -> DataSheet:
    """The data sheet of the GPU that people or drivers call ``name``: ``A100``, ``rtx4090``, ``Tesla V100-SXM2-32GB``.

    Of GPUs that share a name, the first one in the catalog is meant; the sheet's ``name`` says which. A memory size or
    an architecture in the name narrows them down. Raises UnknownGPU, which lists the closest names.
    """
    found = _names().find(name)
    if found is None:
        closest = ", ".join(_names().closest(name))
        hint = f"the closest are: {closest}; " if closest else ""
        raise UnknownGPU(f"no GPU is called {name!r}; {hint}list them all with: placer gpus")
    return gpus()[found]


def knowledge(name: str) -> str:
    """What predictions for a GPU of the catalog rest on: ``published (N rows)`` or ``data sheet``."""
    rows = published_rows().get(name, 0)
    return f"published ({rows:,} rows)" if rows else "data sheet"


@cache
def published_rows() -> Mapping[str, int]:
    """Number of published measurements behind the fitted numbers of each GPU that has any, by its catalog name."""
    rows: dict[str, int] = json.loads(_PUBLISHED.read_text(encoding="utf-8"))["rows"]
    return MappingProxyType(rows)


@cache
def _names() -> Names:
    return Names(gpus().values())


def _sheet(row: dict[str, Any], sources: Mapping[str, str]) -> DataSheet:
    """One line of the file, where lists stand for tuples and ``source`` holds keys of ``sources``."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    values["source"] = "; ".join(sources[key] for key in row["source"])
    return DataSheet(**values)
