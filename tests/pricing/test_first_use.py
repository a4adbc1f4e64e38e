"""What a process pays once on an accelerator, by the ops of its step."""

from __future__ import annotations

import pytest
from torch import nn

from placer.pricing.first_use import first_calls_seconds, libraries_seconds
from placer.tracing import trace
from placer.workload import make_workload

RATES = {
    "first_call_seconds": 1e-3, "first_use/convolution": 0.8, "first_use/product": 0.2, "first_use/fourier": 0.3,
    "first_use/linear_algebra": 1.5, "first_use/shape": 0.01,
}  # fmt: skip


def test_libraries_are_those_that_the_ops_need() -> None:
    image = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3, padding=1))
    step = trace(make_workload(image, (2, 3, 16, 16), mode="infer"))
    assert libraries_seconds(step, RATES) == pytest.approx(0.8)
    shapes = first_calls_seconds(step, RATES) - len({call.op for call in step.calls}) * 1e-3
    assert shapes == pytest.approx(3 * 0.01)
    dense = trace(make_workload(nn.Linear(8, 8), (4, 8), mode="infer"))
    assert libraries_seconds(dense, RATES) == pytest.approx(0.2)
    assert libraries_seconds(trace(make_workload(nn.LSTM(8, 8), (4, 2, 8))), RATES) >= 0.8


def test_a_profile_without_these_rates_knows_none() -> None:
    step = trace(make_workload(nn.Conv1d(3, 8, 3), (2, 3, 16), mode="infer"))
    assert (libraries_seconds(step, {}), first_calls_seconds(step, {})) == (0.0, 0.0)
