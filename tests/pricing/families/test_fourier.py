"""Fourier transforms: five FLOPs for each element and each doubling of the length."""

from __future__ import annotations

import math

import pytest
from described import feature, spec, work

from placer.pricing.op_labels import op_label
from placer.profile import load, shipped


@pytest.mark.parametrize(("dims", "length"), [((1,), 30), ((0, 1), 180), ((), 1)])
def test_the_length_is_that_of_all_dimensions_transformed(dims: tuple[int, ...], length: int) -> None:
    found = work("aten::_fft_c2c", [spec(6, 30)], [spec(6, 30)], dims, 0, True)
    assert (found.family, found.sizes[:2]) == ("fourier", (180, length))
    assert found.flops == pytest.approx(5 * 180 * math.log2(2 + length))


def test_the_larger_side_of_a_real_transform_counts() -> None:
    found = work("aten::_fft_r2c", [spec(6, 30)], [spec(6, 16)], (1,), 0, True)
    assert found.sizes[:2] == (180, 30)
    assert feature(found, "strided") == 0
    assert feature(work("aten::_fft_r2c", [spec(6, 30, stride=(1, 6))], [spec(6, 16)], (0,)), "strided") == 1


def test_complex_operands_are_a_dtype_of_their_own_and_what_ships_knows_all_transforms() -> None:
    real, numbers = spec(6, 30), spec(6, 16, dtype="complex64")
    forward, back = work("aten::_fft_r2c", [real], [numbers], (1,)), work("aten::_fft_c2r", [numbers], [real], (1,))
    between, size = work("aten::_fft_c2c", [numbers], [numbers], (1,)), work("aten::abs", [numbers], [spec(6, 16)])
    assert [found.dtype for found in (forward, back, between, size)] == ["float32", *["complex64"] * 3]
    for name in shipped():
        for fit in load(name, samples=False).fits:
            assert {op_label(found) for found in (forward, back, between)} <= set(fit.families["fourier"].ops), name
