"""What is drawn for an accelerator: half precision, large operands, fused updates, and nothing that it cannot run."""

from __future__ import annotations

from random import Random

import pytest
import torch

from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.benchmarks.probe import Accelerator, Limit, Probe
from placer.pricing import describe_step
from placer.tracing import trace_here
from placer.workload import make_workload

#: Ratios of an H100's rates, roughly.
HALVES = {"bfloat16": 1 / 15, "float16": 1 / 15}
H100 = Limit(3e11, 2e10, 1e9, Accelerator({**HALVES, "float64": 1.0}, 1 << 27))
COMPUTE = (
    "matmul", "convolution", "attention", "normalization", "elementwise", "reduction", "pooling", "recurrent",
    "indexing", "encoder",
)  # fmt: skip


def probes(family: str, limit: Limit, count: int) -> list[Probe]:
    random = Random(f"accelerator {family}")
    return [PROPOSERS[family][0](random, limit) for _ in range(count)]


@pytest.mark.parametrize("family", COMPUTE)
def test_branches_in_half_precision_are_traced_as_such(family: str) -> None:
    dtypes: set[str] = set()
    for probe in probes(family, H100, 8):
        with torch.device("meta"):
            module, args = probe.build(), probe.example()
        module.train(probe.mode == "train")
        traced = trace_here(make_workload(module, batch=args, mode=probe.mode, optimizer="sgd", data="device"))
        dtypes |= {work.dtype for work in describe_step(traced) if work.family == family}
    assert {"float32", *HALVES} <= dtypes


def test_a_device_without_a_dtype_is_not_asked_for_it() -> None:
    apples = Limit(1e10, 1e10, 1e9, Accelerator({"float16": 1.0}))
    for family in ("matmul", "elementwise"):
        names = ", ".join(probe.name for probe in probes(family, apples, 60))
        assert not [word for word in ("float64", "double", "bfloat16") if word in names], family
        assert "float16" in names
