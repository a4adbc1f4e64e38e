"""Two machines compared op by op, where the truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from placer.calibration.fitting.transfer import OTHER_CLASS, SAME_CLASS, ComparedOps, Difference
from placer.profile.profile import FamilyFit

KNOWN = FamilyFit(
    feature_names=("flops", "bytes"), ops=("aten::mm",), x=((10.0, 10.0),), op_index=(0,), y=(0.0,), point_noise=(0.0,),
    length_scales=(4.0, 4.0), op_scale=1.0, mean=0.0, signal=0.2, noise=0.01, parameters={}, measured=1,
)  # fmt: skip


def compared(ratio: np.ndarray, x: np.ndarray, moments: np.ndarray, *, seed: int = 0) -> ComparedOps:
    """Measured ratios with 3 % of noise each."""
    noisy = np.log(ratio) + np.random.default_rng(seed).normal(0.0, 0.03, len(x))
    return ComparedOps(x, np.zeros(len(x), dtype=np.int64), moments, noisy, np.full(len(x), 1e-4))


def shapes(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).uniform(5.0, 25.0, (count, 2))


def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x, np.zeros(len(x), dtype=np.int64)


def test_a_machine_that_is_slower_throughout_is_so_at_shapes_never_measured() -> None:
    points = compared(np.full(40, 1.7), shapes(40), 50.0 * np.arange(40.0))
    mean, variance = Difference(points, KNOWN, 0.0, OTHER_CLASS).predict(*at(shapes(20, seed=2)))
    assert np.exp(mean) == pytest.approx(1.7, rel=0.05)
    assert np.sqrt(variance).max() < 0.1


def test_a_difference_that_grows_with_size_is_learnt() -> None:
    def ratio(x: np.ndarray) -> np.ndarray:
        return 1.0 + (x[:, 0] - 5.0) / 20.0

    points = compared(ratio(shapes(80)), shapes(80), 50.0 * np.arange(80.0))
    unseen = shapes(30, seed=3)
    mean, _ = Difference(points, KNOWN, 0.3, OTHER_CLASS).predict(*at(unseen))
    assert np.exp(mean) == pytest.approx(ratio(unseen), rel=0.12)


def test_many_samples_of_one_slow_moment_say_little() -> None:
    x = shapes(90)
    usual, slow = np.full(30, 1.0), np.full(60, 1.4)
    moments = np.concatenate([50.0 * np.arange(30.0), np.full(60, 700.0)])
    points = compared(np.concatenate([usual, slow]), x, moments)
    mean, _ = Difference(points, KNOWN, 0.0, OTHER_CLASS).predict(*at(shapes(20, seed=4)))
    average = (30 * math.log(1.0) + 60 * math.log(1.4)) / 90
    assert abs(float(np.mean(mean))) < 0.4 * average


def test_far_from_every_sample_the_doubt_is_that_of_any_machine() -> None:
    difference = Difference(compared(np.full(12, 1.2), shapes(12), 50.0 * np.arange(12.0)), KNOWN, 0.0, OTHER_CLASS)
    _, near = difference.predict(*at(shapes(12)))
    _, far = difference.predict(*at(shapes(12) + 500.0))
    assert far.min() > near.max()
    assert far.max() < OTHER_CLASS.family_pace + difference.chosen.signal


def test_one_disturbed_sample_bends_nothing() -> None:
    ratio = np.full(40, 1.3)
    ratio[7] = 20.0
    points = compared(ratio, shapes(40), 50.0 * np.arange(40.0))
    mean, _ = Difference(points, KNOWN, 0.2, OTHER_CLASS).predict(*at(shapes(20, seed=5)))
    assert np.exp(mean) == pytest.approx(1.3, rel=0.08)


def test_what_was_chosen_once_is_used_again() -> None:
    points = compared(np.full(40, 1.7), shapes(40), 50.0 * np.arange(40.0))
    chosen = Difference(points, KNOWN, 0.0, OTHER_CLASS).chosen
    assert Difference(points, KNOWN, 0.0, OTHER_CLASS, chosen).chosen is chosen


def test_a_machine_of_the_same_class_is_believed_to_be_alike() -> None:
    points = compared(np.full(6, 1.3), shapes(6), np.arange(6.0))
    alike, _ = Difference(points, KNOWN, 0.0, SAME_CLASS).predict(*at(shapes(20, seed=6)))
    unlike, _ = Difference(points, KNOWN, 0.0, OTHER_CLASS).predict(*at(shapes(20, seed=6)))
    assert abs(np.mean(alike)) < 0.7 * abs(np.mean(unlike))
