"""Rates of a real CPU, dtypes that a device refuses, and a switch that is put back."""

from __future__ import annotations

import time

import pytest
import torch

from placer.calibration.measuring.rates import flops_per_second, measure_rates, products_in_tf32
from placer.pricing.physics import FRESH_RATE, allows_tf32


def test_a_cpu_has_the_rates_that_physics_need() -> None:
    rates = measure_rates("cpu", seconds=0.5, clock=time.process_time)  # a busy machine changes no rate
    assert all(rates[name] > 0.0 for name in ("dispatch_seconds", "flops/float32", "bytes_per_second", FRESH_RATE))


@pytest.mark.parametrize("error", [TypeError, NotImplementedError])
def test_a_dtype_that_the_device_refuses_has_no_rate(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise error("Cannot convert a MPS Tensor to float64 dtype")

    monkeypatch.setattr(torch.Tensor, "to", refused)
    assert flops_per_second("cpu", torch.float64, lambda *_, **__: 1.0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("before", ["highest", "high"])
def test_the_switch_of_products_is_left_as_it_was(before: str) -> None:
    torch.set_float32_matmul_precision(before)
    try:
        for on in (True, False):
            with products_in_tf32(on):
                assert allows_tf32("matmul") is on
            assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision("highest")
