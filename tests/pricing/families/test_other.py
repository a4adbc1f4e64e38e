"""Ops without a formula: a lower bound, by the largest of what they read and write."""

from __future__ import annotations

import pytest
from described import spec, work

from placer.pricing.families import family_of


def test_the_largest_tensor_is_walked_once() -> None:
    found = work("mylib::anything", [spec(4), spec(3, 5)], [spec(2)])
    assert (found.family, found.flops, found.sizes[:2]) == ("other", 15, (15, 2))
    assert work("mylib::anything", [spec(4)], [spec(30)]).flops == 30


@pytest.mark.parametrize("op", ["aten::linalg_matrix_power", "aten::_ctc_loss", "aten::fft_hfft"])
def test_what_has_no_formula_is_other_even_where_it_looks_elementwise(op: str) -> None:
    assert family_of(op) == "other"
    assert work(op, [spec(4, 4)], [spec(4, 4)]).family == "other"
