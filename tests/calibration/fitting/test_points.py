"""A residual that has learnt from more points than it keeps, without outliers; and what is likeliest of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from placer.calibration.fitting.gaussian import (
    Hyperparameters,
    Points,
    condensed,
    likeliest_hyperparameters,
    unlikelihood,
)
from placer.pricing.gaussian_process import Array, Residual
from placer.profile import FamilyFit

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


def error(points: Points) -> float:
    """The median error of the process through ``points``, whose noise is all there is."""
    fit = FamilyFit(
        feature_names=("a", "b"), ops=("add",), x=points.x, op_index=points.ops, y=points.y, point_noise=points.noise,
        length_scales=CHOSEN.length_scales, op_scale=CHOSEN.op_scale, mean=MEAN, signal=CHOSEN.signal, noise=NOISE,
        parameters={}, measured=len(points),
    )  # fmt: skip
    unseen = np.random.default_rng(8).uniform(0, 4, (200, 2))
    mean, _ = Residual(fit).predict(unseen, np.zeros(200, dtype=np.int64))
    return float(np.median(np.abs(mean - truth(unseen))))


def test_few_points_say_what_all_of_them_do_and_what_doubt_is_left(points: Points) -> None:
    few, doubt = condensed(points, CHOSEN, MEAN, KEPT)
    whole, none = condensed(points, CHOSEN, MEAN, POINTS)
    assert len(few) == KEPT
    assert error(few) < 1.25 * error(whole)
    assert error(few) < 0.75 * error(condensed(points[:KEPT], CHOSEN, MEAN, KEPT)[0])  # what is not kept is not lost
    _, of_half = condensed(points[: POINTS // 2], CHOSEN, MEAN, KEPT)
    assert none == 0.0 < doubt < of_half < NOISE
    assert np.array_equal(whole.y, points.y)
    assert np.array_equal(whole.noise, points.noise + NOISE)


def test_the_likelihood_is_scikit_learns_and_the_search_ends_near_its_top(points: Points) -> None:
    some = replace(points[:150], y=0.5 * (points.y[:150] - points.y[:150].mean()))
    found = likeliest_hyperparameters(some)
    logs = np.log([found.signal, *found.length_scales, found.op_scale, found.noise])
    kernel = ConstantKernel(found.signal) * Matern(found.length_scales, nu=1.5) + WhiteKernel(found.noise)
    other = GaussianProcessRegressor(kernel, alpha=1e-8, optimizer=None).fit(some.x, some.y)
    constant = 0.5 * len(some) * np.log(2.0 * np.pi)
    assert other.log_marginal_likelihood_value_ == pytest.approx(-unlikelihood(logs, some)[0] - constant)
    assert unlikelihood(logs, some)[0] < unlikelihood(np.log([0.3, 8.0, 8.0, 1.0, 0.04]), some)[0]
