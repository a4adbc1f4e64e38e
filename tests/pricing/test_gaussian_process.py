"""The residual's posterior: against known values, scikit-learn, and finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel

from placer.calibration.fitting.gaussian import OpMatern
from placer.pricing.gaussian_process import (
    UNKNOWN_OP,
    Array,
    Residual,
    covariance,
    distances,
    lower_inverse,
    with_weights,
)
from placer.profile.profile import FamilyFit

SCALES = np.array([0.7, 1.5, 3.0])


def make_fit(x: Array, ops: Array, y: Array, *, noise: float = 1e-9, point_noise: Array | None = None) -> FamilyFit:
    own = np.full(len(y), noise) if point_noise is None else point_noise
    return FamilyFit(
        feature_names=("a", "b", "c"), ops=("add", "mul", "exp"), x=x, op_index=ops, y=y, point_noise=own,
        length_scales=tuple(SCALES.tolist()), op_scale=1.3, mean=0.4, signal=0.9, noise=noise, parameters={},
        measured=len(y),
    )  # fmt: skip


@pytest.fixture
def points() -> tuple[Array, Array, Array]:
    random = np.random.default_rng(3)
    x = single(random.uniform(0, 5, (25, 3)))
    return x, random.integers(0, 3, 25).astype(float), single(np.sin(x.sum(1)) + random.normal(0, 0.1, 25))


def single(values: Array) -> Array:
    """What a fit keeps of them."""
    return values.astype(np.float32).astype(np.float64)


def test_it_goes_through_its_points(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    mean, variance = Residual(make_fit(x, ops, y)).predict(x, ops)
    assert mean == pytest.approx(y, abs=1e-5)
    assert variance == pytest.approx(0, abs=1e-5)


def test_far_away_it_knows_no_more_than_before(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    mean, variance = Residual(make_fit(x, ops, y)).predict(x[:4] + 1e4, ops[:4])
    assert mean == pytest.approx(0.4)
    assert variance == pytest.approx(0.9)


def test_weights_once_solved_for_are_kept_and_change_no_price(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    fit = make_fit(x, ops, y, noise=0.1)
    solved = with_weights(fit)
    assert len(fit.weights) == 0
    assert solved.weights == pytest.approx(Residual(fit).weights, rel=1e-6)
    for found, expected in zip(Residual(solved).predict(x, ops), Residual(fit).predict(x, ops), strict=True):
        assert found == pytest.approx(expected, abs=1e-6)


def test_fits_of_the_same_points_share_what_their_variances_need(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    fit = make_fit(x, ops, y)
    scaled = Residual(replace(fit, parameters={"latency": 2.0}, y=fit.y + 1.0))
    assert scaled._inverse is Residual(fit)._inverse
    noisier = replace(fit, point_noise=fit.point_noise + 1.0)
    for other in (replace(fit, x=fit.x + 1.0), replace(fit, signal=2.0), noisier):
        assert Residual(other)._inverse is not scaled._inverse


def test_weights_that_no_longer_fit_are_solved_for_anew(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    fit = with_weights(make_fit(x, ops, y, noise=0.1))
    moved = with_weights(replace(fit, y=fit.y + 1.0))
    assert Residual(moved).predict(x, ops)[0] == pytest.approx(
        Residual(make_fit(x, ops, y + 1.0, noise=0.1)).predict(x, ops)[0], abs=1e-6
    )


def test_an_unknown_op_is_less_certain_than_any_known_one(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    residual = Residual(make_fit(x, ops, y))
    assert residual.op_index("mul") == 1
    assert residual.op_index("aten::unheard_of") == UNKNOWN_OP
    _, known = residual.predict(x, ops)
    mean, unknown = residual.predict(x, np.full(len(x), UNKNOWN_OP))
    assert (unknown > known + 0.05).all()
    assert (unknown < 0.9).all()  # points close by still say something
    assert not np.allclose(mean, 0.4)


def test_a_noisy_point_is_believed_less(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    own = np.zeros(len(y))
    own[0] = 5.0
    residual = Residual(make_fit(x, ops, y, point_noise=own))
    mean, variance = residual.predict(x, ops)
    assert abs(mean[0] - y[0]) > 1e-3
    assert mean[1:] == pytest.approx(y[1:], abs=1e-5)
    assert variance[0] > 0.01


def test_the_same_numbers_as_scikit_learn(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    noise, own = 0.05, np.linspace(0.0, 0.2, len(y))
    observed = single(noise + own)
    fit = make_fit(x, ops, y, noise=noise, point_noise=observed)
    kernel = ConstantKernel(fit.signal) * OpMatern(SCALES, fit.op_scale)
    other = GaussianProcessRegressor(kernel, alpha=observed + 1e-9 * fit.signal, optimizer=None)
    other.fit(np.column_stack([x, ops]), y - fit.mean)
    random = np.random.default_rng(4)
    new, new_ops = random.uniform(-1, 6, (40, 3)), random.integers(0, 3, 40).astype(float)
    expected, deviation = other.predict(np.column_stack([new, new_ops]), return_std=True)
    mean, variance = Residual(fit).predict(new, new_ops)
    assert mean == pytest.approx(expected + fit.mean, abs=1e-9)
    assert variance == pytest.approx(deviation**2, abs=1e-9)


def test_two_ops_are_apart_whatever_their_features() -> None:
    x = np.zeros((2, 3))
    apart = distances(x, np.array([0, 1]), x, np.array([0, 1]), SCALES, 2.0)
    assert apart == pytest.approx(np.array([[0, 2**0.5 / 2.0], [2**0.5 / 2.0, 0]]))


def test_covariance_is_matern_three_halves() -> None:
    assert covariance(np.array([0.0]), 2.5) == pytest.approx([2.5])
    assert covariance(np.array([1.0]), 1.0) == pytest.approx([(1 + 3**0.5) * np.exp(-(3**0.5))])


def test_the_kernels_gradient_is_the_slope_of_the_kernel(points: tuple[Array, Array, Array]) -> None:
    x, ops, _ = points
    rows = np.column_stack([x, ops])
    kernel = OpMatern(SCALES, 1.3)
    value, gradient = kernel(rows, eval_gradient=True)
    assert value == pytest.approx(kernel(rows))
    assert gradient.shape == (25, 25, 4)
    step = 1e-5
    for i in range(4):  # theta is the logarithm of the scales
        moved = np.zeros(4)
        moved[i] = step
        higher, lower = kernel.clone_with_theta(kernel.theta + moved), kernel.clone_with_theta(kernel.theta - moved)
        slope = (higher(rows) - lower(rows)) / (2 * step)
        off_diagonal = ~np.eye(25, dtype=bool)
        assert gradient[..., i][off_diagonal] == pytest.approx(slope[off_diagonal], abs=1e-6)
        assert np.abs(slope).max() > 1e-3


def test_the_kernel_compares_two_sets(points: tuple[Array, Array, Array]) -> None:
    x, ops, _ = points
    rows = np.column_stack([x, ops])
    kernel = OpMatern(SCALES, 1.3)
    assert kernel(rows[:5], rows) == pytest.approx(kernel(rows)[:5])
    assert kernel.diag(rows) == pytest.approx(1.0)


def test_only_the_ratio_of_a_change_of_units_matters(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    plain, scaled = make_fit(x, ops, y), make_fit(2 * x, ops, y)
    scaled = replace(scaled, length_scales=tuple(2 * s for s in scaled.length_scales))
    new = np.random.default_rng(5).uniform(0, 5, (10, 3))
    assert Residual(scaled).predict(2 * new, ops[:10])[0] == pytest.approx(Residual(plain).predict(new, ops[:10])[0])


@pytest.mark.parametrize("n", [1, 2, 47, 48, 49, 100, 151])
def test_a_triangular_matrix_is_inverted(n: int) -> None:
    random = np.random.default_rng(n)
    a = random.normal(size=(n, n))
    lower = np.linalg.cholesky(a @ a.T + n * np.eye(n))
    inverse = lower_inverse(lower)
    assert np.triu(inverse, 1).max(initial=0.0) == 0.0
    assert inverse @ lower == pytest.approx(np.eye(n), abs=1e-9)


def test_what_is_covered_is_a_sampled_op_near_the_samples(points: tuple[Array, Array, Array]) -> None:
    x, ops, y = points
    fit = replace(make_fit(x, ops, y), feature_names=("a", "b", "kinds"))
    low, high = x.min(0), x.max(0)
    inside, apart = (low + high) / 2, np.diag([1.1, 1.1, 99.0])
    asked = np.array([inside, high + 1.0, high + apart[0], low - apart[1], inside + apart[2], inside])
    found = Residual(fit).covers(asked, np.array([0, 1, 0, 0, 0, UNKNOWN_OP]))
    assert found.tolist() == [True, True, False, False, True, False]
    assert not Residual(replace(fit, measured=0)).covers(asked, np.zeros(6)).any()
