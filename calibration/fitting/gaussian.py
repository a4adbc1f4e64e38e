"""The Gaussian process on what a floor misses: its kernel, its points, and the choice of its hyperparameters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    ConstantKernel,
    Hyperparameter,
    Kernel,
    NormalizedKernelMixin,
    StationaryKernelMixin,
    WhiteKernel,
)

from placer.pricing import covariance, distances

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of one family's residual."""

    length_scales: tuple[float, ...]
    op_scale: float
    signal: float
    noise: float


class OpMatern(StationaryKernelMixin, NormalizedKernelMixin, Kernel):  # type: ignore[misc]
    """Matern-3/2 over an op's features and its name; the same function ``placer.pricing.gaussian_process`` evaluates.

    The last column of X is the op's index, the others are features, each with a length scale of its own. Two different
    ops are ``sqrt(2) / op_scale`` apart on top of their features' distance.
    """

    def __init__(
        self,
        length_scale: Array | float = 1.0,
        op_scale: float = 1.0,
        length_scale_bounds: tuple[float, float] = (0.7, 100.0),
        op_scale_bounds: tuple[float, float] = (0.2, 20.0),
    ) -> None:
        self.length_scale = length_scale
        self.op_scale = op_scale
        self.length_scale_bounds = length_scale_bounds
        self.op_scale_bounds = op_scale_bounds

    @property
    def hyperparameter_length_scale(self) -> Hyperparameter:
        return Hyperparameter(
            "length_scale", "numeric", self.length_scale_bounds, len(np.atleast_1d(self.length_scale))
        )

    @property
    def hyperparameter_op_scale(self) -> Hyperparameter:
        return Hyperparameter("op_scale", "numeric", self.op_scale_bounds)

    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: bool = False) -> Any:  # noqa: N803 - scikit-learn's names
        scales = np.atleast_1d(self.length_scale)
        other = X if Y is None else Y
        r = distances(X[:, :-1], X[:, -1], other[:, :-1], other[:, -1], scales, self.op_scale)
        k = covariance(r, 1.0)
        if not eval_gradient:
            return k
        # d k / d log(l_i) = 3 exp(-sqrt(3) r) (x_i - x'_i)^2 / l_i^2, for Matern-3/2
        outer = 3.0 * np.exp(-np.sqrt(3.0) * r)
        scaled = X[:, :-1] / scales
        squared = (scaled[:, None, :] - scaled[None, :, :]) ** 2
        differs = (X[:, -1][:, None] != X[:, -1][None, :]) * (2.0 / self.op_scale**2)
        return k, np.concatenate([outer[..., None] * squared, (outer * differs)[..., None]], axis=2)


#: Standard deviations from what all others predict of it beyond which a sample is an outlier.
OUTLIER = 3.0


def inliers(covariance: Array, y: Array) -> NDArray[np.bool_]:
    """Which of the n targets ``y`` (mean zero) agree with the others; ``covariance`` (n x n) includes noise.

    Leave-one-out errors in closed form (Rasmussen & Williams, 2006, equations 5.10 to 5.12).
    """
    inverse = np.linalg.inv(covariance)
    kept: NDArray[np.bool_] = np.abs(inverse @ y) <= OUTLIER * np.sqrt(np.diag(inverse))
    return kept


Indices = NDArray[np.int64]

#: Inputs are log2 of amounts: half an octave apart is the same shape for all a cost model knows.
SAME = 0.5
#: Variance of log(seconds) of two ops that are the same for all a cost model knows, roughly.
SCATTER = 0.02
#: Points that are handled together. Looking for outliers costs the cube of their number; and a reference has a hundred
#: thousand points.
BLOCK = 2000
#: Variance of a condensed point beyond its doubt: what keeps the covariance well-conditioned.
NUGGET = 0.002


@dataclass(frozen=True)
class Points:
    """What a Gaussian process is fitted to: inputs (n x d), op indices, targets, and variances beyond its own noise."""

    x: Array
    ops: Indices
    y: Array
    noise: Array

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, some: Any) -> Points:
        return Points(self.x[some], self.ops[some], self.y[some], self.noise[some])


def merged(points: Points) -> Points:
    """Points of one op closer than ``SAME`` in every input become one, their mean: less noise, fewer points."""
    places = np.column_stack([points.ops, np.round(points.x / SAME).astype(np.int64)])
    _, first, cell, count = np.unique(places, axis=0, return_index=True, return_inverse=True, return_counts=True)
    cell = cell.reshape(-1)
    weight = 1.0 / (points.noise + SCATTER)
    share = weight / np.bincount(cell, weight)[cell]

    def mean(values: Array) -> Array:
        return np.asarray(np.bincount(cell, share * values), dtype=np.float64)

    x = np.column_stack([mean(column) for column in points.x.T])
    return Points(x, points.ops[first], mean(points.y), mean(points.noise) / count)


def without_outliers(points: Points, chosen: Hyperparameters, mean: float) -> Points:
    """Those points that the others around them do not contradict."""
    kept = []
    for some in _blocks(points):
        part = points[some]
        k = _covariance(part, part, chosen)
        k[np.diag_indices_from(k)] += chosen.noise + part.noise + 1e-9 * chosen.signal
        kept.append(some[inliers(k, part.y - mean)])
    return points[np.concatenate(kept)]


def condensed(points: Points, chosen: Hyperparameters, mean: float, most: int) -> tuple[Points, float]:
    """At most ``most`` of the points, with targets fitted to all of them, and the variance that is left.

    The subset of regressors (Rasmussen & Williams, 2006, section 8.3.1): of all functions that so many points can
    carry, the one that fits every point best; its cost grows with the number of points, not with the cube of it. The
    variance left at the points kept is one for all of them: it does not average out, and is noise.
    """
    if len(points) <= most:
        return replace(points, noise=points.noise + chosen.noise), 0.0
    kept = points[:most]
    inner = _covariance(kept, kept, chosen) + NUGGET * np.eye(most)
    gathered, gram = np.zeros(most), inner.copy()
    for some in _blocks(points):
        part = points[some]
        k = _covariance(kept, part, chosen)
        weighed = k / (part.noise + chosen.noise)
        gathered += weighed @ (part.y - mean)
        gram += weighed @ k.T
    solved = np.linalg.solve(gram, np.column_stack([gathered, inner]))
    variance = np.einsum("ij,ji->i", inner, solved[:, 1:])
    placed = replace(kept, y=mean + inner @ solved[:, 0], noise=np.full(most, NUGGET))
    return placed, float(np.median(variance))


def _blocks(points: Points) -> list[Indices]:
    """The indices of all points, ``BLOCK`` at most at a time."""
    return np.array_split(np.arange(len(points)), math.ceil(len(points) / BLOCK))


def _covariance(left: Points, right: Points, chosen: Hyperparameters) -> Array:
    scales = np.asarray(chosen.length_scales)
    return covariance(distances(left.x, left.ops, right.x, right.ops, scales, chosen.op_scale), chosen.signal)


#: Steps of the search: the last tenths of likelihood change no price and take most of the time.
MOST_STEPS = 25


def likeliest_hyperparameters(points: Points) -> Hyperparameters:
    """Those that ``points`` (targets with mean zero) are likeliest with."""
    x, y = points.x, points.y
    variance = max(float(y.var()), 1e-3)
    kernel = ConstantKernel(min(variance, 1.0), (1e-2, 1.5)) * OpMatern(
        length_scale=np.full(x.shape[1], 8.0), op_scale=1.0
    ) + WhiteKernel(min(0.2 * variance, 0.2), (1e-3, 0.5))
    regressor = GaussianProcessRegressor(kernel, alpha=points.noise + 1e-8, optimizer=_search)
    with warnings.catch_warnings():
        # A length scale at its bound means that a feature does not matter here, which is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regressor.fit(np.column_stack([x, points.ops]), y)
    product, white = regressor.kernel_.k1, regressor.kernel_.k2
    return Hyperparameters(
        length_scales=tuple(float(v) for v in np.atleast_1d(product.k2.length_scale)),
        op_scale=float(product.k2.op_scale),
        signal=float(product.k1.constant_value),
        noise=float(white.noise_level),
    )


def _search(objective: Callable[..., Any], start: Array, bounds: Array) -> tuple[Array, float]:
    """L-BFGS-B, stopped early."""
    found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": MOST_STEPS})
    return np.asarray(found.x), float(found.fun)
