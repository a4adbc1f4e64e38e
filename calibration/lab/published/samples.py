"""Published operators and steps as one table of samples: which rows ran how often, on which GPU, in what time."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from placer.calibration.lab.published.networks import identity, trace_step
from placer.calibration.lab.published.table import PublishedOp, PublishedProblem, PublishedStep, Use
from placer.pricing import Context, describe
from placer.pricing.gpu import COLUMNS, Floor, Row, inputs, rows_of
from placer.profile import DataSheet, find_gpu
from placer.tracing import OpCall, Trace

#: Seconds that a slow host takes to issue an op, and the share of a step up to which it may do so unnoticed.
_SLOW_HOST, _HIDDEN = 17e-6, {"ryujaehun": 0.3}
#: Seconds from an event on an idle device to the start of the first kernel after it, and the share of a problem that a
#: slow host may need unnoticed.
_FIRST_LAUNCH, _HIDDEN_ALONE = 1.5e-5, 0.5
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
    """The different (row, GPU, dtype) of samples, described once: ``floor`` by physics, and the networks' inputs.

    ``members`` are, for each sample, pairs of a number of such an instance and its count. ``inputs[kind]`` has a row
    for each instance of the kind; ``position`` says which.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        numbers: dict[tuple[Row, str, str], int] = {}
        self.members: list[list[tuple[int, int]]] = []
        for sample in samples:
            members = []
            for row, dtype, count in sample.rows:
                number = numbers.setdefault((row, sample.gpu, dtype), len(numbers))
                members.append((number, count))
            self.members.append(members)
        self.instances = list(numbers)
        self.floor = Floor(*np.zeros((3, len(numbers))))
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
                floor, x = inputs(kind, columns, dtype, find_gpu(gpu))
                for known, each in zip(self.floor, floor, strict=True):
                    known[own] = each
                self.position[own] = np.arange(start, start + len(own))
                start += len(own)
                found.append(x.astype(np.float32))
            self.inputs[kind] = np.concatenate(found)


def op_samples(ops: Iterable[PublishedOp]) -> list[Sample]:
    """Samples of published operators."""
    found: list[Sample] = []
    for op in ops:
        rows = _part(tuple(_rows_of_calls(op.calls)), op)
        dtyped = tuple(
            (row, "tf32" if op.dtype == "tf32" and row.kind == "convolution" else row.dtype, 1) for row in rows
        )
        group = op.source, op.op, op.phase, rows[0].dtype
        found.append(Sample(op.source, op.gpu, group, dtyped, op.seconds, op.host_seconds or 0.0, False, op.use))
    return found


def _half(row: Row, part: str) -> tuple[float, ...]:
    """The columns of half a gradient. That of a recurrent layer's weights is one product over all time steps."""
    found = dict(zip(COLUMNS[row.kind], row.columns, strict=True))
    found["flops"] /= 2.0
    found["kernels"] = 1.0 if part == "weight" else found["kernels"]
    return tuple(found.values())


def _rows_of_calls(calls: Iterable[OpCall]) -> Iterator[Row]:
    for call in calls:
        yield from rows_of(describe(call, Context(0, False)))


def problem_samples(problems: Iterable[PublishedProblem]) -> list[Sample]:
    """Samples of published problems: several ops in a row, on a device that was idle before."""
    found: list[Sample] = []
    for problem in problems:
        rows: Counter[Row] = Counter(_rows_of_calls(problem.calls))
        sheet = find_gpu(problem.gpu)
        host_bound = problem.seconds < _FIRST_LAUNCH + len(problem.calls) * _SLOW_HOST / _HIDDEN_ALONE
        found.append(
            Sample(
                problem.source,
                problem.gpu,
                (problem.source, problem.problem, "fwd", problem.dtype),
                tuple((row, _by_default(row, sheet), n) for row, n in rows.items()),
                problem.seconds,
                _FIRST_LAUNCH,
                True,
                "host-bound" if host_bound and problem.use == "fit" else problem.use,
            )
        )
    return found


def _by_default(row: Row, sheet: DataSheet) -> str:
    """``tf32`` where torch lets this GPU's tensor cores multiply float32 unless told otherwise: in cuDNN."""
    by_cudnn = row.kind in ("convolution", "depthwise", "recurrent")
    return "tf32" if by_cudnn and row.dtype == "float32" and sheet.tensor_tf32_tflops else row.dtype


def _part(rows: tuple[Row, ...], op: PublishedOp) -> tuple[Row, ...]:
    """The rows of one half of a gradient that a library computes in two calls."""
    if op.part and op.op == "conv2d":
        flag = COLUMNS["convolution"].index("to_weight" if op.part == "weight" else "to_input")
        return tuple(row for row in rows if row.columns[flag] == 1.0)
    if op.part in ("input", "weight"):
        return tuple(row._replace(label=f"{row.label}_{op.part}", columns=_half(row, op.part)) for row in rows)
    return rows


def step_samples(steps: Iterable[PublishedStep], cache: Path) -> list[Sample]:
    """Samples of published steps. Tracing thousands of networks takes an hour: their calls are kept in ``cache``."""
    rows: dict[str, tuple[tuple[Row, int], ...]] = {}
    found = []
    for step in steps:
        key = identity(step)
        traced = counted(step, cache)
        if key not in rows:
            rows[key] = rows_counted(traced)
        found.append(step_sample(step, traced, rows[key]))
    return found


def step_sample(step: PublishedStep, traced: CountedStep, rows: Sequence[tuple[Row, int]]) -> Sample:
    """The sample of a step by its calls and their rows, each with how often it occurs."""
    sheet = find_gpu(step.gpu)
    slow, fast, begin = _COPY
    copy = traced.batch_bytes / (slow if sheet.pcie_gen < 4 else fast) + begin if step.data == "host" else 0.0
    hidden = _HIDDEN.get(step.source.partition(":")[0], 0.45)
    host_bound = traced.launching * _SLOW_HOST >= hidden * step.seconds
    return Sample(
        step.source,
        step.gpu,
        (step.source, step.family, step.mode, step.dtype),
        tuple((row, _dtype(row, step, sheet), n) for row, n in rows),
        step.seconds,
        copy,
        True,
        "host-bound" if host_bound and step.use == "fit" else step.use,
    )


def _dtype(row: Row, step: PublishedStep, sheet: DataSheet) -> str:
    """``tf32`` where the step lets this GPU's tensor cores multiply float32."""
    if row.dtype != "float32" or sheet.vendor != "nvidia" or not sheet.tensor_tf32_tflops:
        return row.dtype
    by_cudnn = row.kind in ("convolution", "depthwise", "recurrent")
    by_cublas = row.kind == "product"
    allowed = (by_cudnn and step.conv_tf32) or (step.dtype == "tf32" and (by_cudnn or by_cublas))
    return "tf32" if allowed else row.dtype


class CountedStep(msgspec.Struct, frozen=True):
    """The different calls of a step with their counts, and what the tables say of a step besides.

    ``launching`` calls start kernels; ``updates`` tensors are updated.
    """

    calls: tuple[tuple[OpCall, int], ...]
    training: bool
    updates: int
    launching: int
    batch_bytes: int


def counted(step: PublishedStep, cache: Path) -> CountedStep:
    """Trace a step and count its calls, or read them from ``cache``, which may be deleted at any time."""
    path = cache / f"{identity(step)}.json.gz"
    if path.is_file():
        return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=CountedStep, dec_hook=_argument)
    found = count(trace_step(step))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(msgspec.json.encode(found), mtime=0))
    return found


def _argument(_: type, value: Any) -> Any:
    """A call's argument as the tracer has it: a tuple, not the list that JSON has instead."""
    return tuple(_argument(type(each), each) for each in value) if isinstance(value, list) else value


def count(trace: Trace) -> CountedStep:
    """The different calls of a trace, each with how often it occurs in whatever layer."""
    calls = Counter(call._replace(layer="") for call in trace.calls)
    context = Context.of(trace)
    launching = sum(not call.view or call.in_place for call in trace.calls)
    return CountedStep(
        tuple(calls.items()), context.recording, context.updates, launching, sum(t.stored_bytes for t in trace.batch)
    )


def rows_counted(step: CountedStep) -> tuple[tuple[Row, int], ...]:
    """The rows of a step, each with how often it occurs."""
    context = Context(0, step.training, updates=step.updates)
    found: Counter[Row] = Counter()
    for call, n in step.calls:
        for row in rows_of(describe(call, context)):
            found[row] += n
    return tuple(found.items())
