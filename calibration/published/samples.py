"""Published operators and steps as one table of samples: which rows ran how often, on which GPU, in what time."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from placer.calibration.published.networks import identity, trace_step
from placer.calibration.published.table import PublishedOp, PublishedStep, Use
from placer.pricing import Context, describe, describe_step
from placer.pricing.gpu import Row, inputs, rows_of
from placer.profile import DataSheet, find_gpu
from placer.tracing import Trace

#: Seconds that a slow host takes to issue an op, and the share of a step up to which it may do so unnoticed.
_SLOW_HOST, _HIDDEN = 17e-6, {"ryujaehun": 0.3}
#: A pageable copy: bytes per second below PCIe 4 and from it on, and seconds to begin.
_COPY = (5e9, 8e9, 1.5e-4)


@dataclass(frozen=True)
class Sample:
    """``seconds`` were published for ``rows`` (each with its count and dtype) on ``gpu`` (the catalog's name).

    ``offset`` seconds of them are not the device's: the host's share of a timing, or a copy. ``group`` names what is
    alike: a source, an operator or a network family, a phase or mode, and a dtype. ``use`` is ``"host-bound"`` where
    the host may bound a step: that says nothing of the device.
    """

    source: str
    gpu: str
    group: tuple[str, ...]
    rows: tuple[tuple[Row, str, int], ...]
    seconds: float
    offset: float
    is_step: bool
    use: Use | Literal["host-bound"]

    @property
    def device_seconds(self) -> float:
        """What the device is busy for."""
        return self.seconds - self.offset


class Table:
    """The different (row, GPU, dtype) of samples, described once: physical ``seconds`` and inputs of the networks.

    ``members`` are, for each sample, pairs of a number of such an instance and its count. ``inputs[kind]`` has a row
    for each instance of the kind; ``position`` says which.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        numbers: dict[tuple[Row, str, str], int] = {}
        self.members = [
            [(numbers.setdefault((row, sample.gpu, dtype), len(numbers)), n) for row, dtype, n in sample.rows]
            for sample in samples
        ]
        self.instances = list(numbers)
        self.seconds = np.zeros(len(numbers))
        self.position = np.zeros(len(numbers), dtype=np.int64)
        self.inputs: dict[str, NDArray[np.float32]] = {}
        groups: dict[str, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, (row, gpu, dtype) in enumerate(self.instances):
            groups[row.kind][gpu, dtype].append(number)
        for kind, by_gpu in groups.items():
            found = []
            start = 0
            for (gpu, dtype), own in by_gpu.items():
                columns = np.array([self.instances[i][0].columns for i in own])
                self.seconds[own], x = inputs(kind, columns, dtype, find_gpu(gpu))
                self.position[own] = np.arange(start, start + len(own))
                start += len(own)
                found.append(x.astype(np.float32))
            self.inputs[kind] = np.concatenate(found)


def op_samples(ops: Iterable[PublishedOp]) -> list[Sample]:
    """Samples of published operators."""
    found: list[Sample] = []
    for op in ops:
        rows = _part(tuple(row for call in op.calls for row in rows_of(describe(call, Context(0, False)))), op)
        dtyped = tuple(
            (row, "tf32" if op.dtype == "tf32" and row.kind == "convolution" else row.dtype, 1) for row in rows
        )
        group = op.source, op.op, op.phase, rows[0].dtype
        found.append(Sample(op.source, op.gpu, group, dtyped, op.seconds, op.host_seconds or 0.0, False, op.use))
    return found


def _part(rows: tuple[Row, ...], op: PublishedOp) -> tuple[Row, ...]:
    """The rows of one half of a gradient that a library computes in two calls."""
    if op.part and op.op == "conv2d":
        to_input, to_weight = 7, 8  # columns that flag what a convolution's row computes
        flag = to_weight if op.part == "weight" else to_input
        return tuple(row for row in rows if row.columns[flag] == 1.0)
    if op.part in ("input", "weight"):
        return tuple(
            row._replace(label=f"{row.label}_{op.part}", columns=(row.columns[0] / 2.0, *row.columns[1:]))
            for row in rows
        )
    return rows


def step_samples(steps: Iterable[PublishedStep], cache: Path) -> list[Sample]:
    """Samples of published steps. Tracing a thousand networks takes an hour: what was counted is kept in ``cache``."""
    return [_step_sample(step, counted(step, cache)) for step in steps]


def _step_sample(step: PublishedStep, counts: CountedStep) -> Sample:
    sheet = find_gpu(step.gpu)
    slow, fast, begin = _COPY
    copy = counts.batch_bytes / (slow if sheet.pcie_gen < 4 else fast) + begin if step.data == "host" else 0.0
    hidden = _HIDDEN.get(step.source.partition(":")[0], 0.45)
    host_bound = counts.launching * _SLOW_HOST >= hidden * step.seconds
    return Sample(
        step.source, step.gpu, (step.source, step.family, step.mode, step.dtype),
        tuple((row, _dtype(row, step, sheet), n) for row, n in counts.rows), step.seconds, copy, True,
        "host-bound" if host_bound and step.use == "fit" else step.use,
    )  # fmt: skip


def _dtype(row: Row, step: PublishedStep, sheet: DataSheet) -> str:
    """``tf32`` where the step lets this GPU's tensor cores multiply float32."""
    if row.dtype != "float32" or sheet.vendor != "nvidia" or not sheet.tensor_tf32_tflops:
        return row.dtype
    by_cudnn = row.kind in ("convolution", "depthwise", "recurrent")
    by_cublas = row.kind == "product"
    allowed = (by_cudnn and step.conv_tf32) or (step.dtype == "tf32" and (by_cudnn or by_cublas))
    return "tf32" if allowed else row.dtype


@dataclass(frozen=True)
class CountedStep:
    """A step's ``rows`` with their counts, the number of calls that launch kernels, and the bytes of its batch."""

    rows: tuple[tuple[Row, int], ...]
    launching: int
    batch_bytes: int


def counted(step: PublishedStep, cache: Path) -> CountedStep:
    """Trace a step and count its rows, or read them from ``cache``, which may be deleted at any time."""
    path = cache / f"{identity(step)}.json.gz"
    if path.is_file():
        rows, launching, batch_bytes = json.loads(gzip.decompress(path.read_bytes()))
        known = tuple((Row(kind, label, dtype, tuple(columns)), n) for kind, label, dtype, columns, n in rows)
        return CountedStep(known, launching, batch_bytes)
    found = count(trace_step(step))
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([[[*row, n] for row, n in found.rows], found.launching, found.batch_bytes])
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return found


def count(trace: Trace) -> CountedStep:
    """The rows of a trace, each with how often it occurs."""
    rows = Counter(row for work in describe_step(trace) for row in rows_of(work))
    launching = sum(not call.view or call.in_place for call in trace.calls)
    return CountedStep(tuple(rows.items()), launching, sum(t.stored_bytes for t in trace.batch))
