"""A validation record: what was predicted and what was measured, cell by cell, as JSON on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from placer.calibration.validation.json_fields import JsonFields
from placer.errors import CalibrationError
from placer.profile import json_values, replace_file

#: The format. Earlier ones were never in a release, and are not read.
SCHEMA = 4
_MAX_BYTES = 64 * 2**20

#: What makes a cell: network, batch, mode, device, threads.
Key = tuple[str, int, str, str, int]


def thread_count(threads: int) -> str:
    """For people: ``1 thread``, ``2 threads``."""
    return f"{threads} thread{'' if threads == 1 else 's'}"


@dataclass(frozen=True)
class Cell:
    """One network, batch and mode on one device with one number of CPU threads. Times are seconds per step.

    ``predicted`` is None where there is no prediction (``prediction_error`` says why), ``measured`` where there is no
    measurement (``error`` says why). ``low`` and ``high`` bound the predicted 90 % interval; ``coverage`` is the share
    of the prediction due to calibrated ops; ``one_time_seconds`` what the device costs once, before its steps. A
    cell is measured on one or more ``visits``, minutes apart: their medians, of which ``measured`` is the median.
    ``p10`` and ``p90`` are the lowest and the highest of any visit, and ``repeatability`` the ratio (1 or more) between
    the first and the last visit, or between the two halves of the only one: no prediction can be closer than that.
    Steps at another speed than the machine's usual one are left out: ``usual`` has the share of the others for each
    visit, and ``anyhow`` the medians of all steps. A visit with hardly any step at the usual speed counts only where
    all visits are so. ``decision_seconds`` is what tracing and pricing took. ``baselines`` are simpler predictions of
    the same step.
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
        return f"{self.network}, batch {self.batch}, {self.mode} on {self.device} with {thread_count(self.threads)}"


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
    data = json.dumps(asdict(report), indent=1, allow_nan=False).encode() + b"\n"
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
    if type(schema) is int and schema != SCHEMA:
        what = "upgrade placer" if schema > SCHEMA else "measure again"
        raise CalibrationError(f"{path} has schema {schema}, this placer reads {SCHEMA}: {what}")
    try:
        return _report(document)
    except json_values.UnfitError as error:
        raise CalibrationError(f"{path} is not a validation record: {error}") from error


def _report(document: Any) -> Report:
    top = JsonFields(document, "record", tuple(f.name for f in fields(Report)), outermost=True)
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
    values = JsonFields(item, where, tuple(f.name for f in fields(Cell)))
    read: dict[str, Any] = {name: values.text(name) for name in _TEXTS}
    read |= {name: values.integer(name, least) for name, least in _COUNTS.items()}
    read |= {name: values.optional_number(name) for name in _NUMBERS}
    read |= {name: values.optional_text(name) for name in ("prediction_error", "error")}
    read |= {name: values.numbers(name) for name in ("visits", "usual", "anyhow")}
    for name in ("predicted", "measured"):
        if read[name] == 0.0:
            raise json_values.UnfitError(f"{values.place(name)}: a step takes time")
    return Cell(**read, traceable=values.boolean("traceable"), baselines=values.numbers_by_name("baselines"))
