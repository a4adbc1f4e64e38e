"""What a residual is learnt over: amounts and sizes as logarithms, flags as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from priced import FLAT, device, family, matmul

from placer.pricing.residual_inputs import fitted_features, foreign_family, inputs_of


def test_amounts_and_sizes_are_logarithms_and_flags_are_not() -> None:
    work = replace(matmul(4), flops=7.0, bytes=0.0, sizes=(1.0, 3.0), flags=(0.25, 1.0))
    assert inputs_of(work) == pytest.approx((3.0, 0.0, 1.0, 2.0, 0.25, 1.0))


def test_a_fit_of_the_features_of_now_is_not_foreign() -> None:
    own = family([matmul(4)], [0.0], FLAT)
    assert len(fitted_features("matmul")) == len(inputs_of(matmul(4)))
    assert foreign_family(device({"matmul": own})) is None
    assert foreign_family(device({"softmax": own})) == "softmax"
    assert fitted_features("no such family") == ()
