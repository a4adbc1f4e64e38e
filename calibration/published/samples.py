"""Published operators and steps as one table of samples: which rows ran how often, on which GPU, in what time."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from placer.calibration.published.counted_step import CountedStep, counted
from placer.calibration.published.networks import NotBuilt
from placer.calibration.published.ops import PublishedOp
from placer.calibration.published.steps import PublishedStep
from placer.errors import UnknownGPU
from placer.pricing import Context, describe
from placer.pricing.gpu import LAUNCH, Row, inputs, rows_of
from placer.profile import DataSheet, find_gpu

#: GPUs as the step sources call them, where the catalog needs more than that.
_STEP_GPUS = {
    "RTX 3080 Ti 16GB": "GeForce RTX 3080 Ti Laptop GPU", "A100": "NVIDIA A100-SXM4-40GB",
    "V100": "Tesla V100-SXM2-32GB", "V100 16GB": "Tesla V100-SXM2-16GB", "V100 32GB": "Tesla V100-SXM2-32GB",
    "V100 SXM": "Tesla V100-SXM2-16GB", "RTX 6000": "Quadro RTX 6000", "RTX 8000": "Quadro RTX 8000",
    "RTX 5000": "Quadro RTX 5000", "MI300X VF": "AMD Instinct MI300X",
}  # fmt: skip
#: GPUs that no fit sees, so that predictions from a data sheet alone are held against their steps.
HELD_OUT_GPUS = frozenset(("TITAN RTX", "RTX 4060 Ti 16GB", "RTX 3080 Ti 16GB"))
#: One in so many networks, and operator shapes, is seen by no fit.
FOLDS = 5
#: Sources without a licence: their rows check predictions, and no number that ships is fitted to them.
UNLICENSED = frozenset(("lambdal", "u39kun", "sandeepkumar-skb/pytorch_experiments", "lcy-seso/Carrot",
                        "stefbraun/rnn_benchmarks"))  # fmt: skip
#: Seconds that a slow host takes to issue an op, and the share of a step up to which it may do so unnoticed.
_SLOW_HOST, _HIDDEN = 17e-6, {"ryujaehun": 0.3}
#: Seconds of kernels below which a timing shows the host alone, and the host's share where none is as small.
_TINY, _USUAL_HOST = 3e-6, 25e-6
#: Times below so many times the host's show nothing of the kernels.
_ABOVE_FLOOR = 1.15
#: Sources whose float32 convolutions ran in TF32, cuDNN's default since Ampere.
_TF32_CONVOLUTIONS = ("triosim-sample", "triosim-trace")
#: A pageable copy: bytes per second below PCIe 4 and from it on, and seconds to begin.
_COPY = (5e9, 8e9, 1.5e-4)


@dataclass(frozen=True)
class Sample:
    """``seconds`` were published for ``rows`` (each with its count and dtype) on ``gpu`` (the catalog's name).

    ``offset`` seconds of them are not the device's: the host's share of a timing, or a copy. ``group`` names what is
    alike: a source, an operator or a network family, a phase or mode, and a dtype. ``held_out``: in no fit.
    """

    source: str
    gpu: str
    group: tuple[str, ...]
    rows: tuple[tuple[Row, str, int], ...]
    seconds: float
    offset: float
    is_step: bool
    held_out: bool
    held_out_gpu: bool = False
    device_bound: bool = True
    step: PublishedStep | None = None

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


def fold(text: str) -> int:
    """A number below ``FOLDS`` that depends on ``text`` alone."""
    return int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16) % FOLDS


def op_samples(ops: Iterable[PublishedOp]) -> list[Sample]:
    """Samples of published operators. The host's share of a time that includes it is found per source, GPU and op."""
    found: list[Sample] = []
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for op in ops:
        sheet = find_gpu(op.gpu)
        rows = _part(tuple(row for call in op.calls for row in rows_of(describe(call, Context(0, False)))), op)
        if not rows:
            continue
        if op.includes_host:
            groups[op.source, sheet.name, op.op, op.phase].append(len(found))
        found.append(Sample(
            op.source, sheet.name, (op.source, op.op, op.phase, rows[0].dtype),
            tuple((row, _op_dtype(row, op.source), 1) for row in rows), op.seconds, 0.0, False,
            fold(repr([row.columns for row in rows])) == 0,
        ))  # fmt: skip
    least = physics(found)
    hidden = _subtract_host(found, groups, least)
    shown = [i for i in range(len(found)) if i not in hidden]
    return [found[i] for i in shown if _plausible(found[i], least[i])]


def _op_dtype(row: Row, source: str) -> str:
    return "tf32" if source in _TF32_CONVOLUTIONS and row.kind == "convolution" else row.dtype


def _part(rows: tuple[Row, ...], op: PublishedOp) -> tuple[Row, ...]:
    """The rows of one half of a gradient that a library computes in two calls."""
    if op.part and op.op == "conv2d":
        position = 8 if op.part == "weight" else 7  # of the flags to_weight and to_input
        return tuple(row for row in rows if row.columns[position] == 1.0)
    if op.part in ("input", "weight"):
        return tuple(
            row._replace(label=f"{row.label}_{op.part}", columns=(row.columns[0] / 2.0, *row.columns[1:]))
            for row in rows
        )
    return rows


def _subtract_host(found: list[Sample], groups: dict[tuple[str, ...], list[int]], least: Sequence[float]) -> set[int]:
    """Give each sample of ``groups`` the host's share of its time, and return those that show the host alone.

    Between two event records the host needs ``a`` seconds, half of them before it launches the kernel. So a time is
    ``max(a, a / 2 + kernels)``: regressions on bytes of large elementwise ops meet zero at 0.45 to 0.55 of the floor on
    every GPU of the source.
    """
    by_gpu: dict[tuple[str, ...], list[float]] = defaultdict(list)
    floors: dict[tuple[str, ...], float] = {}
    for key, members in groups.items():
        small = [found[i].seconds for i in members if least[i] < LAUNCH + _TINY]
        if len(small) >= 5:
            floors[key] = median(small)
            by_gpu[key[:2]].append(floors[key])
    host_alone = set()
    for key, members in groups.items():
        known = by_gpu.get(key[:2]) or by_gpu.get(("neusight-train", key[1])) or [_USUAL_HOST]
        most = min(found[i].seconds for i in members)
        floor = floors.get(key, min((1.5 if key[3] == "bwd" else 1.0) * median(known), most))
        for i in members:
            found[i] = replace(found[i], offset=max(floor / 2.0 - LAUNCH, 0.0))
            if found[i].seconds < _ABOVE_FLOOR * floor:
                host_alone.add(i)
    return host_alone


def physics(samples: Sequence[Sample]) -> list[float]:
    """Seconds of each sample by the roofline and launches alone."""
    table = Table(samples)
    return [sum(n * (LAUNCH + table.seconds[j]) for j, n in members) for members in table.members]


def _plausible(sample: Sample, least: float) -> bool:
    """Whether a time is neither 60 times the roofline nor a quarter of it: fallbacks, throttling, wrong units."""
    return 0.25 * (least - LAUNCH) <= sample.device_seconds <= 60.0 * least


def step_samples(steps: Sequence[PublishedStep], cache: Path | None) -> tuple[list[Sample], Counter[str]]:
    """Samples of published steps, and how many are left out by reason."""
    found: list[Sample] = []
    left_out: Counter[str] = Counter()
    for step in steps:
        try:
            sheet = find_gpu(catalog_gpu(step.gpu))
            rows = counted(step, cache)
        except UnknownGPU:
            left_out[f"not in the catalog: {step.gpu}"] += 1
            continue
        except (NotBuilt, ImportError) as reason:
            left_out[str(reason)] += 1
            continue
        found.append(_step_sample(step, rows, sheet))
    return found, left_out


def _step_sample(step: PublishedStep, counts: CountedStep, sheet: DataSheet) -> Sample:
    slow, fast, begin = _COPY
    copy = counts.batch_bytes / (slow if sheet.pcie_gen < 4 else fast) + begin if step.copies == "host" else 0.0
    host = (counts.forward_ops + counts.backward_ops) * _SLOW_HOST
    hidden = _HIDDEN.get(step.source.partition(":")[0], 0.45)
    return Sample(
        step.source, sheet.name, (step.source, step.family, step.mode, step.dtype),
        tuple((row, dtype_of(row, step, sheet), n) for row, n in counts.rows), step.seconds, copy, True,
        fold(base_network(step.network)) == 0, step.gpu in HELD_OUT_GPUS, host < hidden * step.seconds, step,
    )  # fmt: skip


def catalog_gpu(name: str) -> str:
    """A name that the catalog finds, for the GPU that a step source calls ``name``."""
    return _STEP_GPUS.get(name, name)


def base_network(network: str) -> str:
    """The network's name without its source and its weights."""
    return network.rpartition(":")[2].lower().partition(".")[0]


def dtype_of(row: Row, step: PublishedStep, sheet: DataSheet) -> str:
    """``tf32`` where the step lets this GPU's tensor cores multiply float32."""
    if row.dtype != "float32" or sheet.vendor != "nvidia" or not sheet.tensor_tf32_tflops:
        return row.dtype
    by_cudnn = row.kind in ("convolution", "depthwise", "recurrent")
    by_cublas = row.kind == "product"
    allowed = (by_cudnn and step.conv_tf32) or (step.dtype == "tf32" and (by_cudnn or by_cublas))
    return "tf32" if allowed else row.dtype


def fitted_to(step: PublishedStep) -> str:
    """Why a step is no part of any fit; "" where it is."""
    if step.source in UNLICENSED:
        return "no licence"
    if step.family == "recommender":
        return "its rows contain CUDA graphs or data loading"
    if any("kept apart" in caveat for caveat in step.caveats):
        return "kept for validation"
    return "" if step.source != "profiler-trace" else "under a profiler"
