"""A validation record: what was predicted and what was measured, cell by cell, as JSON on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from placer.errors import CalibrationError
from placer.profile import replace_file

#: The format. Earlier ones were never in a release, and are not read.
SCHEMA = 4
_MAX_BYTES = 64 * 2**20

#: What makes a cell: network, batch, mode, device, threads.
Key = tuple[str, int, str, str, int]
Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[float, msgspec.Meta(ge=0.0)]
#: A step takes time.
Seconds = Annotated[float, msgspec.Meta(gt=0.0)]


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
    ``decision_seconds`` is what tracing and pricing took. ``baselines`` are simpler predictions of the same step.
    ``parameters`` counts the numbers in the model's parameters; None where the model was not built.
    """

    network: Text
    family: Text
    batch: Count
    mode: Text
    device: Text
    threads: Annotated[int, msgspec.Meta(ge=1)]
    optimizer: Text = ""
    traceable: bool = True
    predicted: Seconds | None = None
    low: Number | None = None
    high: Number | None = None
    coverage: Number | None = None
    flops: Number | None = None
    decision_seconds: Number | None = None
    one_time_seconds: Number | None = None
    prediction_error: Text | None = None
    measured: Seconds | None = None
    p10: Number | None = None
    p90: Number | None = None
    count: Count = 0
    repeatability: Number | None = None
    error: Text | None = None
    baselines: Mapping[str, Number] = field(default_factory=dict)
    visits: tuple[Number, ...] = ()
    parameters: Count | None = None

    @property
    def key(self) -> Key:
        return self.network, self.batch, self.mode, self.device, self.threads

    @property
    def title(self) -> str:
        """For people: ``lstm, batch 32, train on cpu with 2 threads``."""
        return f"{self.network}, batch {self.batch}, {self.mode} on {self.device} with {thread_count(self.threads)}"


@dataclass(frozen=True)
class Report:
    """All cells of a run. ``profile`` says which profile predicted; ``skipped`` maps networks not run to the reason.

    A record that was shared (``sharing``) has the ``placer`` version that wrote it, and the machine's ``calibration``.
    """

    created: Text
    fingerprint: Mapping[str, Any]
    profile: Text
    cells: tuple[Cell, ...] = ()
    skipped: Mapping[Text, Text] = field(default_factory=dict)
    schema: int = SCHEMA
    placer: Text = ""
    calibration: Mapping[str, Any] | None = None

    def with_cells(self, new: Iterable[Cell]) -> Report:
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
        data = path.read_bytes()
        head = msgspec.json.decode(data, type=_Head)
        if head.format:  # a record has none
            raise CalibrationError(f"{path} is a {head.format}, not a validation record: give it to --profile")
        schema = head.schema
        if schema != SCHEMA:
            what = "upgrade placer" if schema > SCHEMA else "measure again"
            raise CalibrationError(f"{path} has schema {schema}, this placer reads {SCHEMA}: {what}")
        return msgspec.json.decode(data, type=Report)
    except OSError as error:
        raise CalibrationError(f"cannot read the record {path}: {error.strerror or error}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise CalibrationError(
            f"{path} is not a validation record: {error}; placer validate --share writes one, or --output"
        ) from error


def apart(visits: Sequence[float]) -> float:
    """The ratio, 1 or more, between the first and the last of these times."""
    ratio = visits[-1] / visits[0]
    return max(ratio, 1.0 / ratio)


class _Head(msgspec.Struct):
    schema: int
    format: str = ""
