"""Apple's GPUs through MPS: an isolated op, ops of a step, what MPS lacks, and published times."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from described import spec, traced, work
from torch import nn

from placer.calibration.benchmarks.probe import Apply
from placer.pricing import Residence, device_model, gpu_profile, predict
from placer.pricing.framework import host_seconds
from placer.pricing.gpu.apple import missing_op, mps_host
from placer.profile import find_gpu
from placer.tracing import trace
from placer.workload import make_workload


@pytest.mark.parametrize(("dtype", "tflops"), [("float32", 4.28), ("float16", 4.75), ("bfloat16", 2.25)])
def test_products_reach_what_was_published_of_an_m1_pro(dtype: str, tflops: float) -> None:
    """zzc0721/torch-performance-test-data#191, 4096 x 4096."""
    square = spec(4096, 4096, dtype=dtype)
    (seconds,), _, _ = device_model("M1 Pro").price([work("aten::mm", [square, square], [square])])
    assert 2.0 * 4096**3 / seconds == pytest.approx(tflops * 1e12, rel=0.15)


def test_an_op_whose_result_is_wanted_takes_far_longer_than_one_inside_a_step() -> None:
    step = trace(make_workload(nn.ReLU(), (64, 64), mode="infer", data="device"))
    profile = gpu_profile("M4 Max")

    elsewhere = {"devices": ["mps"], "data": "device", "residence": Residence(here=False)}
    inside, wanted = (predict(replace(step, syncs=waits), profile, **elsewhere)["mps"].step_seconds for waits in (0, 1))
    assert wanted - inside > 0.9 * profile.fit("mps").rates["sync_seconds"] > 20.0 * inside


@pytest.mark.parametrize(("length", "batch", "hidden", "published"), [(16, 8, 64, 1.075e-3), (64, 16, 128, 4.073e-3)])
def test_a_gru_is_issued_op_by_op(length: int, batch: int, hidden: int, published: float) -> None:
    """pytorch#192727, on an M1."""
    op = traced(nn.GRU(hidden, hidden), "aten::gru", (length, batch, hidden), mode="infer")
    _, framework = mps_host(find_gpu("M1"))
    assert host_seconds(op, framework) == pytest.approx(published, rel=0.2)
    lstm = traced(nn.LSTM(hidden, hidden), "aten::lstm", (length, batch, hidden), mode="infer")
    assert host_seconds(op, framework) > 5.0 * host_seconds(lstm, framework)


def test_an_op_that_mps_lacks_is_named_unless_the_cpu_may_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    step = trace(make_workload(Apply(torch.linalg.eigvalsh), (8, 8), mode="infer"))
    monkeypatch.delenv("PYTORCH_ENABLE_MPS_FALLBACK", raising=False)
    assert missing_op(step) == "aten::_linalg_eigh"
    assert missing_op(trace(make_workload(nn.ReLU(), (8, 8), mode="infer"))) is None
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    assert missing_op(step) is None
