"""From how far away the code of an op comes back."""

from __future__ import annotations

import pytest

from placer.pricing.reuse_distance import reuse_distances, reuse_share

KB = 1 << 10


@pytest.mark.parametrize(("moved", "share"), [(0, 0.0), (16 * KB - 1, 0.0), (512 * KB - 1, 0.5), (1 << 40, 1.0)])
def test_code_comes_back_from_farther_the_more_was_moved(moved: float, share: float) -> None:
    assert reuse_share(moved) == pytest.approx(share)


def test_distances_are_what_ran_between_in_a_step_that_repeats() -> None:
    assert reuse_distances([("a", 1.0), ("b", 2.0), ("a", 4.0), ("c", 8.0)]) == [8.0, 13.0, 2.0, 7.0]
    assert reuse_distances([("a", 1.0), ("a", 2.0)]) == [0.0, 0.0]
