"""A few rows of published ops and steps as their tables have them, written into a folder."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLUMNS = (
    "source", "date", "cpu", "cores", "threads", "torch", "op", "phase", "dtype", "shapes", "microseconds", "notes",
)  # fmt: skip
STEP_COLUMNS = (
    "source", "date", "cpu", "cores", "threads", "torch", "network", "batch", "input", "mode", "dtype", "step_ms",
    "gpu", "compiled", "notes",
)  # fmt: skip

#: The measurements themselves, beside the checkout.
PUBLISHED = Path(__file__).resolve().parents[2] / "shared" / "cpu-data"


def op(
    name: str, shapes: dict[str, Any], microseconds: float | None, notes: str = "", **changes: Any
) -> dict[str, str]:
    """A row of an op on 24 cores. ``notes`` follow the source's own name of the case, the op's."""
    known: dict[str, Any] = {
        "source": "pytorch operator_benchmark: x86 ci csv @0",
        "date": "2025-10",
        "cores": 24,
        "threads": 24,
        "cpu": "c5.12xlarge (Xeon Platinum, Cascade Lake)",
        "torch": "",
        "op": name,
        "phase": "fwd",
        "dtype": "float32",
        "shapes": json.dumps(shapes),
        "microseconds": "" if microseconds is None else microseconds,
        "notes": "; ".join(filter(None, (f"{name}_cpu", notes))),
    }
    return {**known, **changes}


def on_apple(name: str, shapes: dict[str, Any], cpu: float | None, mps: float, notes: str = "") -> list[dict[str, str]]:
    """The rows of one case on an M4 Max: its CPU, and MPS."""
    known = {"source": "mlx-benchmark", "date": "2024-11-12", "torch": ""}
    own = op(name, shapes, cpu, notes, **known, cpu="Apple M4 Max", cores="16", threads="12")
    other = op(name, shapes, mps, notes, **known, cores="40", threads="", host="Apple M4 Max (M4 Max (128GB))")
    return [own, {**other, "gpu": "Apple M4 Max GPU (MPS)"}]


def step(network: str, milliseconds: float, **changes: Any) -> dict[str, Any]:
    """A row of a forward pass with 32 threads."""
    known: dict[str, Any] = {
        "source": "pytorch inductor CPU: pytorch#1", "date": "2023-09-10", "cores": "32", "threads": "32", "torch": "",
        "cpu": "Intel Xeon Platinum 8375C @ 2.90GHz (Ice Lake, one socket)", "network": network, "batch": "2",
        "input": "torchbench default", "mode": "eval forward", "dtype": "float32", "step_ms": milliseconds, "gpu": "",
        "compiled": "no", "notes": "inductor CPU benchmark; median of repeated forward passes",
    }  # fmt: skip
    return {**known, **changes}


def write(folder: Path, ops: Sequence[dict[str, Any]] = (), steps: Sequence[dict[str, Any]] = ()) -> Path:
    """The three tables with these rows; returns their folder."""
    accelerated = [row for row in ops if "gpu" in row]
    own = tuple("gpu" if name == "cpu" else name for name in COLUMNS)
    _table(folder / "ops.csv.gz", COLUMNS, [row for row in ops if "gpu" not in row])
    _table(folder / "accelerator_ops.csv.gz", (*own, "host"), accelerated)
    _table(folder / "steps.csv.gz", STEP_COLUMNS, steps)
    return folder


def _table(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
