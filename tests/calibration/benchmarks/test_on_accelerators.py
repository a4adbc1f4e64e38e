"""What is drawn for an accelerator: half precision, large operands, fused updates, and nothing that it cannot run."""

from __future__ import annotations

import math
import re
from random import Random

import pytest
import torch

from placer.calibration.benchmarks import PROPOSERS
from placer.calibration.benchmarks.probe import Accelerator, Branch, Limit, Probe, block
from placer.calibration.measuring.step import make_optimizer
from placer.pricing import describe_step
from placer.tracing import trace_here
from placer.workload import Workload

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


def branches(found: list[Probe]) -> list[str]:
    """The names of all branches; a comma within a shape separates none."""
    return [name for probe in found for name in re.sub(r"\([^)]*\)", "", probe.name).split(", ")]


@pytest.mark.parametrize("family", COMPUTE)
def test_half_of_the_branches_are_in_half_precision(family: str) -> None:
    names = branches(probes(family, H100, 40))
    for dtype in HALVES:
        assert 0.15 < sum(name.endswith(f" {dtype}") for name in names) / len(names) < 0.4, dtype


@pytest.mark.parametrize("family", COMPUTE)
def test_ops_in_half_precision_are_traced_as_such(family: str) -> None:
    found: set[str] = set()
    for probe in probes(family, H100, 6):
        with torch.device("meta"):
            module, args = probe.build(), probe.example()
        step = trace_here(
            Workload(target=module, modules=(module,), args=args, kwargs={}, mode=probe.mode, loss=None,
                     optimizer=None if probe.mode == "infer" else "sgd", data="device")
        )  # fmt: skip
        found |= {work.dtype for work in describe_step(step) if work.family == family}
    assert {"float32", "bfloat16", "float16"} <= found


def test_a_device_without_a_dtype_is_not_asked_for_it() -> None:
    apples = Limit(1e10, 1e10, 1e9, Accelerator({"float16": 1.0}))
    for family in ("matmul", "elementwise"):
        names = ", ".join(probe.name for probe in probes(family, apples, 60))
        assert not [word for word in ("float64", "to64", "widened", "bfloat16") if word in names], family
        assert "float16" in names


def test_a_flop_counts_as_much_as_the_device_takes_for_it() -> None:
    drawn: list[tuple[torch.dtype, bool]] = []

    def draw(_: Random, limit: Limit) -> Branch:
        return Branch("product", torch.nn.Identity, (4,), 1e9, 4e6)

    random = Random(0)
    limit = Limit(4e9, 1e9, accelerator=Accelerator({"float16": 0.1}))
    for _ in range(20):  # too much arithmetic in float32, not in float16
        probe = block(random, limit, family="matmul", draw=draw, most=1, training=1.0)
        (made,) = probe.example()
        drawn.append((made.dtype, made.requires_grad))
    assert (torch.float16, True) in drawn


def test_operands_are_larger_than_any_cache_and_products_as_large_as_layers_of_language_models() -> None:
    def largest(family: str) -> float:
        most = 0.0
        for probe in probes(family, H100, 25):
            with torch.device("meta"):
                parts = (*probe.build().parameters(), *probe.example())
            most = max(most, *(part.numel() for part in parts))
        return most

    for family in ("elementwise", "reduction", "normalization"):
        assert largest(family) > 1 << 24, family
    assert largest("matmul") >= 4096 * 8192


def tensors_and_size(probe: Probe) -> tuple[int, int]:
    tensors, size = probe.name.split(" x ")
    return int(tensors.split()[-1]), int(size)


def test_updates_are_fused_at_times_and_of_hundreds_of_tensors() -> None:
    found = probes("optimizer", H100, 120)
    fused = [probe for probe in found if probe.fused]
    assert {str(probe.optimizer) for probe in fused} == {"adam", "adamw", "sgd"}
    assert all("fused" in probe.name for probe in fused)
    assert max(tensors_and_size(probe)[0] for probe in found) > 256
    small = min(fused, key=lambda probe: math.prod(tensors_and_size(probe)))
    module = small.build()
    step = trace_here(
        Workload(target=module, modules=(module,), args=small.example(), kwargs={}, mode="train", loss=None,
                 optimizer=make_optimizer(module, str(small.optimizer), fused=True), data="device")
    )  # fmt: skip
    (update, *_) = (call for call in step.on("cuda").calls if call.phase == "optimizer")
    assert ("fused", True) in update.args
