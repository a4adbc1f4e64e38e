"""Rates of a real CPU, dtypes that a device refuses, and a switch that is put back."""

from __future__ import annotations

import pytest
import torch

from placer.calibration.measuring.rates import products_in_tf32
from placer.pricing.physics import allows_tf32


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
