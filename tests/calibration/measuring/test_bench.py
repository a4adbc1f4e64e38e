"""Probes are measured for real, and described."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from placer.calibration.benchmarks.probe import Probe
from placer.calibration.measuring.bench import Bench


@pytest.mark.usefixtures("one_round")
def test_a_probe_is_measured_and_described() -> None:
    probe = Probe("matmul", "one layer", lambda: nn.Linear(16, 8), lambda: (torch.randn(4, 16),), "train", "sgd")
    seen = Bench("cpu", torch.get_num_threads()).measure(probe, seconds=0.02)
    assert seen is not None
    assert (seen.device, seen.family, seen.name) == ("cpu", "matmul", "one layer")
    assert seen.counts["training_step"] == 1
    product = next(op for op in seen.ops if op.op == "aten::addmm")
    assert product.seconds is not None
    assert product.work().flops == 2 * 4 * 16 * 8
    assert 0 < product.seconds < seen.seconds
    # On the CPU every op of so plain a step is found, so its phases are known.
    assert set(seen.gaps) == {"forward", "backward", "update"}
    assert 0 < seen.gaps["update"] < seen.seconds
