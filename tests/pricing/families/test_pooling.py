"""Pooling and its gradients: windows over the larger side."""

from __future__ import annotations

import pytest
from described import feature, spec, traced, work
from torch import nn

from placer.pricing.describe import amounts


def test_a_gradient_walks_the_same_windows_as_its_forward() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.MaxPool2d(3, 2))
    forward = traced(model, "aten::max_pool2d_with_indices", (4, 1, 9, 9))
    backward = traced(model, "aten::max_pool2d_with_indices_backward", (4, 1, 9, 9))
    large, small = 4 * 2 * 81, 4 * 2 * 16
    for found in (forward, backward):
        assert (found.family, found.flops) == ("pooling", large)
        assert found.sizes[:3] == (large, small, pytest.approx(large / small))
        assert amounts(found)["compared"] == pytest.approx(large)


def test_a_window_holds_one_element_at_the_least() -> None:
    up = work("aten::upsample_nearest2d", [spec(1, 1, 2, 2)], [spec(1, 1, 4, 4)])
    assert up.sizes[:3] == (16, 16, 1)
    apart = work("aten::avg_pool2d", [spec(1, 2, 4, 4, stride=(32, 1, 8, 2))], [spec(1, 2, 2, 2)])
    assert (feature(apart, "strided"), feature(up, "strided")) == (1, 0)
