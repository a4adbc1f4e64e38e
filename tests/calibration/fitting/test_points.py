"""A residual that has learnt from more points than it keeps, and without outliers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting import gaussian as fitted_points
from placer.calibration.fitting.gaussian import Hyperparameters, Points, condensed, without_outliers
from placer.pricing.gaussian_process import Array, Residual
from placer.profile.profile import FamilyFit

POINTS, KEPT, NOISE, MEAN = 600, 60, 0.04, 0.5
CHOSEN = Hyperparameters((2.0, 4.0), 1.0, 1.0, NOISE)


def truth(x: Array) -> Array:
    return np.asarray(np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1])


@pytest.fixture(scope="module")
def points() -> Points:
    random = np.random.default_rng(7)
    x = random.uniform(0, 4, (POINTS, 2))
    y = truth(x) + random.normal(0, NOISE**0.5, POINTS)
    return Points(x, np.zeros(POINTS, dtype=np.int64), y, np.zeros(POINTS))


@pytest.fixture
def unseen() -> Array:
    return np.random.default_rng(8).uniform(0, 4, (200, 2))


def fewer(points: Points, most: int) -> Points:
    return condensed(points, CHOSEN, MEAN, most)[0]


def error(points: Points, x: Array) -> float:
    """The median error at ``x`` of the process through ``points``, whose noise is all there is."""
    process = Residual(
        FamilyFit(
            feature_names=("a", "b"), ops=("add",), x=tuple(map(tuple, points.x.tolist())), op_index=(0,) * len(points),
            y=tuple(points.y.tolist()), point_noise=tuple(points.noise.tolist()), length_scales=CHOSEN.length_scales,
            op_scale=CHOSEN.op_scale, mean=MEAN, signal=CHOSEN.signal, noise=NOISE, parameters={}, measured=len(points),
        )
    )  # fmt: skip
    mean, _ = process.predict(x, np.zeros(len(x), dtype=np.int64))
    return float(np.median(np.abs(mean - truth(x))))


def test_few_points_say_what_all_of_them_do(points: Points, unseen: Array) -> None:
    few, all_of_them = fewer(points, KEPT), fewer(points, POINTS)
    assert len(few) == KEPT
    assert error(few, unseen) < 1.25 * error(all_of_them, unseen)


def test_what_is_not_kept_is_not_lost(points: Points, unseen: Array) -> None:
    dropped = fewer(points[:KEPT], KEPT)
    assert error(fewer(points, KEPT), unseen) < 0.75 * error(dropped, unseen)


def test_the_doubt_that_is_left_is_told(points: Points) -> None:
    _, doubt = condensed(points, CHOSEN, MEAN, KEPT)
    _, of_half = condensed(points[: POINTS // 2], CHOSEN, MEAN, KEPT)
    assert 0.0 < doubt < of_half < NOISE


def test_what_fits_already_stays_as_it_is(points: Points) -> None:
    same, doubt = condensed(points, CHOSEN, MEAN, POINTS)
    assert np.array_equal(same.y, points.y)
    assert np.array_equal(same.noise, points.noise + NOISE)
    assert doubt == 0.0


def test_a_point_that_all_others_contradict_is_left_out(points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted_points, "BLOCK", 250)  # not all of them at once
    wrong = points.y.copy()
    wrong[[3, 400]] += 5.0
    kept = without_outliers(replace(points, y=wrong), CHOSEN, MEAN)
    assert POINTS - 20 <= len(kept) <= POINTS - 2
    assert not set(wrong[[3, 400]]) & set(kept.y)
