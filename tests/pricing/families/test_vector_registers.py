"""Sizes that fill no whole number of vector registers."""

from __future__ import annotations

import pytest
from described import feature, traced
from torch import nn

from placer.pricing.families.vector_registers import padded

RAGGED: dict[str, tuple[nn.Module, tuple[int, ...], bool]] = {
    "rows of whole registers": (nn.Linear(5, 48), (3, 5), False),
    "rows that end within one": (nn.Linear(5, 47), (3, 5), True),
    "a single column": (nn.Linear(5, 1), (3, 5), False),
    "channels in blocks": (nn.Conv2d(16, 32, 3), (2, 16, 8, 8), False),
    "channels of the image not": (nn.Conv2d(3, 32, 3), (2, 3, 8, 8), True),
    "channels of the result not": (nn.Conv1d(16, 20, 3), (2, 16, 8), True),
    "a grey image": (nn.Conv2d(1, 16, 3), (2, 1, 8, 8), False),
    "channels of all groups together": (nn.Conv2d(32, 32, 3, groups=32), (2, 32, 8, 8), False),
    "the same transposed": (nn.ConvTranspose2d(32, 32, 3, groups=4), (2, 32, 8, 8), False),
}


@pytest.mark.parametrize("name", RAGGED)
def test_what_fills_no_vector_register_is_ragged(name: str) -> None:
    model, shape, expected = RAGGED[name]
    linear = isinstance(model, nn.Linear)
    forward = traced(model, "aten::addmm" if linear else "aten::convolution", shape, mode="infer")
    assert feature(forward, "ragged") == expected
    if not linear:
        assert feature(traced(model, "aten::convolution_backward", shape), "ragged") == expected


def test_a_dimension_is_rounded_up_to_whole_registers() -> None:
    assert [padded(size) for size in (0, 1, 16, 20, 32)] == [1.0, 16.0, 1.0, 1.6, 1.0]
