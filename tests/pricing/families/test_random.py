"""What draws random numbers is read like an elementwise op, and known as another family."""

from __future__ import annotations

import pytest
from described import spec, work


@pytest.mark.parametrize("op", ["bernoulli_", "native_dropout", "randn", "rand_like"])
def test_one_number_for_each_element(op: str) -> None:
    found = work(f"aten::{op}", [spec(4, 8)], [spec(4, 8)])
    assert (found.family, found.flops, found.sizes[0]) == ("random", 32, 32)
