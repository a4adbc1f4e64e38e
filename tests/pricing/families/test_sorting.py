"""Sorting and scans: comparisons by the length of a row."""

from __future__ import annotations

import math

import pytest
from described import spec, work

from placer.pricing.describe import amounts


@pytest.mark.parametrize("op", ["sort", "topk", "cumsum"])
def test_longer_rows_are_compared_more_often(op: str) -> None:
    found = work(f"aten::{op}", [spec(6, 30)], [spec(6, 30)])
    assert (found.family, found.sizes[:2]) == ("sorting", (180, 30))
    assert amounts(found)["compared"] == pytest.approx(180 * math.log2(32))
