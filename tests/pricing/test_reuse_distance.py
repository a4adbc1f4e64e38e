"""From how far away the code of an op comes back."""

from __future__ import annotations

import pytest

from placer.pricing.reuse_distance import reuse_share

KB = 1 << 10


@pytest.mark.parametrize(("moved", "share"), [(0, 0.0), (16 * KB - 1, 0.0), (512 * KB - 1, 0.5), (1 << 40, 1.0)])
def test_code_comes_back_from_farther_the_more_was_moved(moved: float, share: float) -> None:
    assert reuse_share(moved) == pytest.approx(share)
