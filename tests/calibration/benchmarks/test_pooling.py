"""Which pooling layers are drawn, and of what."""

from __future__ import annotations

from random import Random

from placer.calibration.benchmarks.layers import draw_pooling
from placer.calibration.benchmarks.probe import Limit


def test_most_maxima_are_taken_of_what_has_passed_a_rectifier() -> None:
    random = Random(0)
    drawn = [draw_pooling(random, Limit(1e9, 1e8)) for _ in range(60)]
    maxima = [branch for branch in drawn if branch.name.startswith("max")]
    rectified = [branch for branch in maxima if float(branch.example(False).min()) == 0.0]
    assert 0.5 < len(rectified) / len(maxima) < 0.9
    assert all(branch.example(True).requires_grad for branch in drawn)
    assert all(float(branch.example(False).min()) < 0.0 for branch in drawn if branch not in maxima)
