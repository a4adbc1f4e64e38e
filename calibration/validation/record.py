"""A validation record: what was predicted and what was measured, cell by cell, as JSON on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from placer.errors import CalibrationError
from placer.profile import json_values, replace_file

#: History of the format.
#:
#: 1 (placer 0.1): created, fingerprint, profile, skipped, cells.
#: 2 (placer 0.1): cells know the median of every visit; in format 1 there was one visit.
#: 3 (placer 0.1): cells know the predicted one-time cost.
#: 4 (placer 0.1): cells know the share of steps at the machine's usual pace of every visit, and the medians of all.
SCHEMA = 4
_MAX_BYTES = 64 * 2**20

#: What makes a cell: network, batch, mode, device, threads.
Key = tuple[str, int, str, str, int]


@dataclass(frozen=True)
class Cell:
    """One network, batch and mode on one device with one number of CPU threads. Times are seconds per step.

    ``predicted`` is None where there is no prediction (``prediction_error`` says why), ``measured`` where there is no
    measurement (``error`` says why). ``low`` and ``high`` bound the predicted 90 % interval; ``coverage`` is the share
    of the prediction that rests on calibrated ops; ``one_time_seconds`` what the device costs once, before its steps. A
    cell is measured on one or more ``visits``, minutes apart: their medians, of which ``measured`` is the median.
    ``p10`` and ``p90`` are the lowest and the highest of any visit, and ``repeatability`` the ratio (1 or more) between
    the first and the last visit, or between the two halves of the only one: no prediction can be closer than that.
    Steps at another pace than the machine's usual one are left out: ``usual`` has the share of the others for each
    visit, and ``anyhow`` the medians of all steps. A visit with hardly any such step counts only where all are so.
    ``decision_seconds`` is what tracing and pricing took. ``baselines`` are simpler predictions of the same step.
    """

    network: str
    family: str
    batch: int
    mode: str
    device: str
    threads: int
    optimizer: str = ""
    traceable: bool = True
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    coverage: float | None = None
    flops: float | None = None
    decision_seconds: float | None = None
    one_time_seconds: float | None = None
    prediction_error: str | None = None
    measured: float | None = None
    p10: float | None = None
    p90: float | None = None
    count: int = 0
    repeatability: float | None = None
    error: str | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    visits: tuple[float, ...] = ()
    usual: tuple[float, ...] = ()
    anyhow: tuple[float, ...] = ()

    @property
    def key(self) -> Key:
        return self.network, self.batch, self.mode, self.device, self.threads

    @property
    def title(self) -> str:
        """For people: ``lstm, batch 32, train on cpu with 2 threads``."""
        plural = "" if self.threads == 1 else "s"
        return f"{self.network}, batch {self.batch}, {self.mode} on {self.device} with {self.threads} thread{plural}"


@dataclass(frozen=True)
class Report:
    """All cells of a run. ``profile`` says which profile predicted; ``skipped`` maps networks not run to the reason."""

    created: str
    fingerprint: Mapping[str, Any]
    profile: str
    cells: tuple[Cell, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA

    def with_cells(self, new: tuple[Cell, ...]) -> Report:
        """The same report with cells added, those of the same key replaced."""
        cells = {cell.key: cell for cell in (*self.cells, *new)}
        return replace(self, cells=tuple(cells.values()))


def save(report: Report, path: Path) -> None:
    """Write atomically. Raises CalibrationError if the file cannot be written."""
    document = asdict(report)
    data = json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"
    try:
        replace_file(path, data)
    except OSError as error:
        raise CalibrationError(f"cannot write {path}: {error.strerror or error}; give another --output") from error


def load(path: Path) -> Report:
    """Read a record, every value checked. Raises CalibrationError that says what is wrong with which file."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CalibrationError(f"{path} is larger than {_MAX_BYTES} bytes: not a validation record")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise CalibrationError(f"cannot read the record {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CalibrationError(f"{path} is not a validation record (not JSON)") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if type(schema) is int and schema > SCHEMA:
        raise CalibrationError(f"{path} has schema {schema}, this placer reads {SCHEMA}: upgrade placer")
    try:
        return _report(document if schema == SCHEMA else _current(document))
    except json_values.UnfitError as error:
        raise CalibrationError(f"{path} is not a validation record: {error}") from error


def _current(document: Any) -> Any:
    """A record of an earlier format as one of today's; what is none is left to the reader to refuse."""
    cells = document.get("cells") if isinstance(document, dict) else None
    if not isinstance(cells, list) or document.get("schema") not in range(1, SCHEMA):
        return document
    current = [_current_cell(c, document["schema"]) if isinstance(c, dict) else c for c in cells]
    return {**document, "schema": SCHEMA, "cells": current}


def _current_cell(cell: dict[str, Any], schema: int) -> dict[str, Any]:
    if schema == 1:
        cell = {**cell, "visits": [] if cell.get("measured") is None else [cell["measured"]]}
    visits = cell.get("visits")
    if isinstance(visits, list):  # nothing was left out
        cell = {"usual": [1.0] * len(visits), "anyhow": visits, **cell}
    return {"one_time_seconds": None, **cell}


class _Fields:
    """The values of one JSON object, by name, each checked as it is read."""

    def __init__(self, item: Any, where: str, names: tuple[str, ...]) -> None:
        self._values = json_values.json_object(item, where, names)
        self._where = where

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def place(self, name: str) -> str:
        """Where in the document the value is: for errors."""
        return f"{self._where}.{name}" if self._where else name

    def text(self, name: str) -> str:
        return json_values.text(self[name], self.place(name))

    def integer(self, name: str, least: int) -> int:
        return json_values.integer(self[name], self.place(name), least)

    def texts_by_name(self, name: str) -> dict[str, str]:
        found = json_values.json_object(self[name], self.place(name), None)
        return {key: json_values.text(value, f"{self.place(name)}.{key}") for key, value in found.items()}

    def optional_text(self, name: str) -> str | None:
        return None if self[name] is None else self.text(name)

    def optional_number(self, name: str) -> float | None:
        return None if self[name] is None else json_values.number(self[name], self.place(name), 0.0)

    def numbers(self, name: str) -> tuple[float, ...]:
        listed = json_values.json_list(self[name], self.place(name))
        return tuple(json_values.number(value, self.place(name), 0.0) for value in listed)

    def numbers_by_name(self, name: str) -> dict[str, float]:
        return json_values.numbers(self[name], self.place(name), 0.0)

    def boolean(self, name: str) -> bool:
        if type(self[name]) is not bool:
            raise json_values.UnfitError(f"{self.place(name)}: expected true or false")
        return bool(self[name])


def _report(document: Any) -> Report:
    top = _Fields(document, "record", tuple(f.name for f in fields(Report)))
    top.integer("schema", 1)
    fingerprint = json_values.json_object(top["fingerprint"], "fingerprint", None)
    json_values.check_tree(fingerprint, "fingerprint")
    skipped = top.texts_by_name("skipped")
    cells = [_cell(item, f"cells[{i}]") for i, item in enumerate(json_values.json_list(top["cells"], "cells"))]
    return Report(
        created=top.text("created"),
        fingerprint=fingerprint,
        profile=top.text("profile"),
        cells=tuple(cells),
        skipped=skipped,
    )


_TEXTS = ("network", "family", "mode", "device", "optimizer")
_COUNTS = {"batch": 0, "threads": 1, "count": 0}
_NUMBERS = (
    "predicted", "low", "high", "coverage", "flops", "decision_seconds", "one_time_seconds", "measured", "p10", "p90",
    "repeatability",
)  # fmt: skip


def _cell(item: Any, where: str) -> Cell:
    values = _Fields(item, where, tuple(f.name for f in fields(Cell)))
    read: dict[str, Any] = {name: values.text(name) for name in _TEXTS}
    read |= {name: values.integer(name, least) for name, least in _COUNTS.items()}
    read |= {name: values.optional_number(name) for name in _NUMBERS}
    read |= {name: values.optional_text(name) for name in ("prediction_error", "error")}
    read |= {name: values.numbers(name) for name in ("visits", "usual", "anyhow")}
    for name in ("predicted", "measured"):
        if read[name] == 0.0:
            raise json_values.UnfitError(f"{values.place(name)}: a step takes time")
    return Cell(**read, traceable=values.boolean("traceable"), baselines=values.numbers_by_name("baselines"))
