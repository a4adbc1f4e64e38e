"""A made-up truth about GPUs: operators and steps whose times follow a known law."""

from __future__ import annotations

from typing import Any

import numpy as np

from placer.calibration.lab.published.samples import Sample
from placer.calibration.lab.published.table import PublishedStep
from placer.pricing import Context, describe
from placer.pricing.gpu import LAUNCH, Row, inputs, rows_of
from placer.profile import find_gpu
from placer.tracing import OpCall, TensorSpec

GPUS = ("Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB")


def spec(*shape: int) -> TensorSpec:
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    return TensorSpec(shape, tuple(strides), "float32")


def product(m: int, k: int, n: int) -> OpCall:
    return OpCall("aten::mm", (spec(m, k), spec(k, n)), (spec(m, n),))


def elementwise(name: str, numel: int) -> OpCall:
    return OpCall(f"aten::{name}", (spec(numel), spec(numel)), (spec(numel),))


def row(call: OpCall) -> Row:
    (found,) = rows_of(describe(call, Context(0, False)))
    return found


def physics(each: Row, gpu: str) -> float:
    """Seconds without the launch."""
    return float(inputs(each.kind, np.array([each.columns]), each.dtype, find_gpu(gpu))[0].seconds[0])


def truth(each: Row, gpu: str) -> float:
    """Products take half as much again as physics, additions 2.2 times, other ops 1.6; all but the T4, a fifth less."""
    factor = {"product": 1.5, "memory": 2.2 if each.label.endswith("add") else 1.6}[each.kind]
    return LAUNCH + physics(each, gpu) * factor * (1.0 if gpu == "Tesla T4" else 0.8)


def op_sample(call: OpCall, gpu: str, **changes: Any) -> Sample:
    each = row(call)
    known: dict[str, Any] = {
        "source": "made up",
        "gpu": gpu,
        "group": ("made up", call.op, "fwd", "float32"),
        "rows": ((each, "float32", 1),),
        "seconds": truth(each, gpu),
        "offset": 0.0,
        "is_step": False,
        "use": "fit",
    }
    return Sample(**{**known, **changes})


def step_sample(calls: list[tuple[OpCall, int]], gpu: str, **changes: Any) -> Sample:
    rows = tuple((row(call), "float32", n) for call, n in calls)
    known: dict[str, Any] = {
        "source": "made up",
        "gpu": gpu,
        "group": ("made up", "vision-conv", "train", "float32"),
        "rows": rows,
        "seconds": sum(n * truth(each, gpu) for each, _, n in rows),
        "offset": 0.0,
        "is_step": True,
        "use": "fit",
    }
    return Sample(**{**known, **changes})


def published_step(builder: str, *shape: int, **changes: Any) -> PublishedStep:
    """One inference of a network for images or numbers of this shape."""
    known: dict[str, Any] = {
        "source": "ryujaehun:lamikr", "gpu": "Tesla V100-SXM2-16GB", "network": f"{builder}:made up",
        "family": "vision-conv", "builder": builder, "arguments": {}, "inputs": [list(shape)], "batch": shape[0],
        "dtype": "float32", "conv_tf32": False, "channels_last": False, "mode": "infer", "optimizer": "", "loss": "",
        "gradients": "", "data": "host", "torch": "", "seconds": 0.01, "compiled_seconds": None, "use": "fit",
    }  # fmt: skip
    return PublishedStep(**{**known, **changes})


def small_world(seed: int = 0, **changes: Any) -> list[Sample]:
    """Products and additions on three GPUs, then steps, which alone contain multiplications."""
    draw = np.random.default_rng(seed)
    samples = []
    for gpu in GPUS:
        for _ in range(150):
            m, k, n = (int(2 ** draw.uniform(5, 12)) for _ in range(3))
            samples.append(op_sample(product(m, k, n), gpu, **changes))
            samples.append(op_sample(elementwise("add", int(2 ** draw.uniform(12, 26))), gpu, **changes))
        for _ in range(40):
            size = int(2 ** draw.uniform(8, 11))
            parts = [(product(size, size, size), 3), (elementwise("mul", 64 * size * size), 5)]
            samples.append(step_sample(parts, gpu, **changes))
    return samples
