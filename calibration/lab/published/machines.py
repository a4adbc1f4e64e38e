"""Published times of single ops on CPUs of many cores, on Apple's chips and on some GPUs: one row as one call.

The tables lie beside the repository, not in it: ``ops.csv.gz`` of CPUs, ``accelerator_ops.csv.gz`` of MPS and CUDA.
Each row names its source, machine, threads, shapes and what to know of it. Rows that their own notes tell to leave out
are left out.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placer.errors import PlacerError

#: What a note begins with that tells to leave a row out, and the reason in a word.
FLAGS = {
    "ARTEFACT": "artefact", "WRONG DEVICE": "on the wrong device", "the process had about one core": "about one core",
    "host loaded": "host loaded", "ERROR in the source": "error in the source",
    "the machine was disturbed": "machine disturbed", "in place over and over": "in place over and over",
    "no-op": "does nothing", "a view": "a view", "pathological": "pathological", "stale": "stale",
    "quantisation": "quantised",
}  # fmt: skip
#: Ops of quantised tensors or of quantisation-aware training.
_QUANTISED = re.compile(r"quantized|qat |q(?:u?int)\d")
#: Seconds above those of a row without a figure: its source prints hundredths of a millisecond, and printed 0.00.
UNPRINTED = 5e-6
#: What the sources begin with that name their cases, first of the notes.
NAMING = ("pytorch operator_benchmark", "mlx-benchmark")
#: The harness names what it differentiates by; the rows of one case measure the same thing.
_GRADIENTS = re.compile(r"_bwd(all|\d+)_BACKWARD$")


@dataclass(frozen=True)
class MachineOp:
    """One published time of one op, in seconds.

    ``name`` is the source's own name of the case. ``device`` is "cpu", "mps" or "cuda"; ``machine`` the CPU, or the
    accelerator. ``host`` is the CPU of the same table. ``cores`` and ``threads`` are 0 where they are not known.
    ``shapes`` has the shapes ``in``, that of the weight ``w``, and arguments. ``is_bound``: the op took less than this.
    """

    source: str
    date: str
    name: str
    device: str
    machine: str
    host: str
    cores: int
    threads: int
    op: str
    phase: str
    dtype: str
    shapes: Mapping[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()
    is_bound: bool = False

    @property
    def call(self) -> str:
        """Equal for rows that call the same."""
        what = [self.op, self.phase, self.dtype, self.shapes, self.channels_last, self.weight_transposed]
        return json.dumps(what, sort_keys=True)

    @property
    def channels_last(self) -> bool:
        """Whether input and weight of a convolution are permuted views of memory with the channels last."""
        return any("views (channels last" in note for note in self.notes)

    @property
    def weight_transposed(self) -> bool:
        """Whether the weight of a linear layer is a transposed view."""
        return any(note.startswith("weight is a transposed view") for note in self.notes)


def read_machine_ops(folder: Path) -> tuple[list[MachineOp], Counter[str]]:
    """The rows of both tables, and how many are left out by reason. Raises PlacerError where they are not there."""
    left_out: Counter[str] = Counter()
    rows = []
    for file in ("ops.csv.gz", "accelerator_ops.csv.gz"):
        for row in read_table(folder / file):
            reason = left_out_as(row)
            if reason:
                left_out[reason] += 1
            else:
                rows.append(_op(row))
    return rows, left_out


def read_table(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a table by column. Raises PlacerError."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)
    except OSError as error:
        raise PlacerError(
            f"no published measurements in {path}: {error.strerror or error}; give the folder of ops.csv.gz, "
            "accelerator_ops.csv.gz and steps.csv.gz"
        ) from error


def number(text: str) -> int:
    """The number that a cell begins with; 0 where it tells none."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def left_out_as(row: Mapping[str, str]) -> str:
    """Why a row of ops is left out; "" where it is not."""
    for note in row["notes"].split("; "):
        for flag, reason in FLAGS.items():
            if note.startswith(flag):
                return reason
    return "quantised" if _QUANTISED.match(row["op"]) or _QUANTISED.match(row["dtype"]) else ""


def _op(row: Mapping[str, str]) -> MachineOp:
    accelerator = row.get("gpu", "")
    machine = accelerator.replace(" GPU", "").replace(" (MPS)", "") if accelerator else row["cpu"]
    own, *notes = row["notes"].split("; ")
    named = row["source"].startswith(NAMING)
    name = _GRADIENTS.sub("_BACKWARD", own) if named else f"{row['op']} {row['dtype']} {row['shapes']}"
    return MachineOp(
        source=row["source"],
        date=row["date"],
        name=name,
        device="cpu" if not accelerator else "mps" if "MPS" in accelerator else "cuda",
        machine=machine,
        host=row.get("host", row.get("cpu", "")).partition(" (")[0],
        cores=number(row["cores"]),
        threads=number(row["threads"]),
        op=row["op"],
        phase=row["phase"],
        dtype=row["dtype"].partition(" ")[0],
        shapes=json.loads(row["shapes"]),
        seconds=float(row["microseconds"] or UNPRINTED * 1e6) * 1e-6,
        notes=tuple(notes if named else (own, *notes)),
        is_bound=not row["microseconds"],
    )
