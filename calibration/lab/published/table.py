"""The clean tables of published measurements in ``data/``, read; ``data/README.md`` says what each column means."""

from __future__ import annotations

import csv
import json
import lzma
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from placer.errors import PlacerError
from placer.tracing import OpCall, TensorSpec

#: Beside the code in a checkout of the repository; no part of the package that is installed.
DATA = Path(__file__).parent / "data"

#: ``fit``: fitted to. ``held out`` and so on: every fifth network or operator shape, and three GPUs. ``check``: a step
#: that only checks predictions. ``compiled``: a step that is there for its compiled time alone.
Use = Literal["fit", "held out", "held-out network", "held-out GPU", "check", "compiled"]


@dataclass(frozen=True)
class PublishedOp:
    """``seconds`` that ``calls`` took together on ``gpu`` (the catalog's name).

    ``host_seconds`` of them are the host's; None where only kernels were timed. ``part`` names the half of a gradient
    that a library computes in a call of its own: ``"input"`` or ``"weight"``.
    """

    source: str
    gpu: str
    op: str
    phase: str
    part: str
    dtype: str
    calls: tuple[OpCall, ...]
    seconds: float
    host_seconds: float | None
    use: Use


@dataclass(frozen=True)
class PublishedProblem:
    """``seconds`` of one forward of a few ops, ``calls``, on ``gpu`` (the catalog's name), from launch to end.

    ``compiled_seconds`` are those of the same problem under ``torch.compile``.
    """

    source: str
    gpu: str
    problem: str
    dtype: str
    calls: tuple[OpCall, ...]
    seconds: float
    compiled_seconds: float | None
    use: Use


@dataclass(frozen=True)
class PublishedStep:
    """``seconds`` of one step of a known network on ``gpu`` (the catalog's name).

    Attributes:
        family: ``vision-conv``, ``vision-transformer``, ``language``, ``recommender`` or ``speech``.
        builder, arguments: who builds the network, and what of (``networks``).
        inputs: for each a shape, of floating-point numbers, or an object with ``shape``, ``dtype`` and perhaps the
            ``name`` of the argument.
        batch: samples of the step.
        dtype: ``float32``, ``tf32`` (convolutions and matrix products), ``float16``, ``bfloat16``, ``float64``,
            ``amp-float16`` or ``amp-bfloat16``.
        conv_tf32: float32 convolutions run in TF32, as they do by default since torch 1.7 on Ampere and later.
        optimizer: "" where no update is inside the step.
        loss: "" without one; its gradient is inside the step also where the loss itself is "not timed".
        gradients: whether the backward pass stores them or adds to those of the step before.
        data: where the batch is when the step begins; a ``"host"`` batch is copied from pageable memory.
        torch: its version; "" where the source does not say.
        compiled_seconds: of the same step under ``torch.compile``.
    """

    source: str
    gpu: str
    network: str
    family: str
    builder: Literal["torchvision", "timm", "transformers", "neumf", "plain"]
    arguments: dict[str, Any]
    inputs: list[Any]
    batch: int
    dtype: str
    conv_tf32: bool
    channels_last: bool
    mode: Literal["train", "infer"]
    optimizer: str
    loss: str
    gradients: str
    data: Literal["host", "device"]
    torch: str
    seconds: float
    compiled_seconds: float | None
    use: Use


def read_ops() -> Iterator[PublishedOp]:
    """The published operators. Raises PlacerError where the tables are not beside the code."""
    for row in _rows("ops.csv.xz"):
        dtype = "float32" if row["dtype"] == "tf32" else row["dtype"]
        yield PublishedOp(
            row["source"],
            row["gpu"],
            row["op"],
            row["phase"],
            row["part"],
            row["dtype"],
            tuple(_call(dtype, *call) for call in json.loads(row["calls"])),
            float(row["microseconds"]) * 1e-6,
            float(row["host_microseconds"]) * 1e-6 if row["host_microseconds"] else None,
            row["use"],
        )


def read_steps() -> Iterator[PublishedStep]:
    """The published steps. Raises PlacerError where the tables are not beside the code."""
    for row in _rows("steps.csv.xz"):
        seconds = float(row.pop("milliseconds")) * 1e-3
        compiled = row.pop("compiled_milliseconds")
        known: dict[str, Any] = {
            **row,
            "arguments": json.loads(row["arguments"]),
            "inputs": json.loads(row["inputs"]),
            "batch": int(row["batch"]),
            "conv_tf32": row["conv_tf32"] == "yes",
            "channels_last": row["channels_last"] == "yes",
        }
        yield PublishedStep(**known, seconds=seconds, compiled_seconds=float(compiled) * 1e-3 if compiled else None)


def read_problems() -> Iterator[PublishedProblem]:
    """The published problems. Raises PlacerError where the tables are not beside the code."""
    for row in _rows("kernelbench.csv.xz"):
        compiled = row["compiled_microseconds"]
        yield PublishedProblem(
            row["source"],
            row["gpu"],
            row["problem"],
            row["dtype"],
            tuple(_call(row["dtype"], *call) for call in json.loads(row["calls"])),
            float(row["microseconds"]) * 1e-6,
            float(compiled) * 1e-6 if compiled else None,
            row["use"],
        )


def _rows(name: str) -> Iterator[dict[str, Any]]:
    path = DATA / name
    if not path.is_file():
        raise PlacerError(f"no published measurements at {path}: they are in the repository, not in the package")
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _call(dtype: str, op: str, inputs: list[Any], outputs: list[Any], args: Any = ()) -> OpCall:
    return OpCall(
        f"aten::{op}",
        tuple(_tensor(dtype, t) for t in inputs),
        tuple(_tensor(dtype, t) for t in outputs),
        tuple(tuple(arg) if isinstance(arg, list) else arg for arg in args),
    )


def _tensor(dtype: str, tensor: Any) -> TensorSpec:
    """A shape, or an object with ``shape`` and what differs from a contiguous tensor of ``dtype``."""
    given = tensor if isinstance(tensor, dict) else {"shape": tensor}
    shape = given["shape"]
    sizes = [max(size, 1) for size in shape]
    contiguous = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    return TensorSpec(tuple(shape), tuple(given.get("stride", contiguous)), given.get("dtype", dtype))
