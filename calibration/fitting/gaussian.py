"""The Gaussian process on what a floor misses: its points, and the choice of its hyperparameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from placer.pricing import covariance, distances

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of one family's residual."""

    length_scales: tuple[float, ...]
    op_scale: float
    signal: float
    noise: float


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
#: The least and the most that the search takes of a signal, a length scale, the ops' scale and a noise.
SIGNALS, LENGTHS, OP_SCALES, NOISES = (1e-2, 1.5), (0.7, 100.0), (0.2, 20.0), (1e-3, 0.5)


def likeliest_hyperparameters(points: Points) -> Hyperparameters:
    """Those that ``points`` (targets with mean zero) are likeliest with.

    A length scale at its bound means that a feature does not matter here, which is an answer.
    """
    features = points.x.shape[1]
    variance = max(float(points.y.var()), 1e-3)
    start = [min(variance, 1.0), *[8.0] * features, 1.0, min(0.2 * variance, 0.2)]
    bounds = np.log([SIGNALS, *[LENGTHS] * features, OP_SCALES, NOISES])
    at = np.clip(np.log(start), *bounds.T)
    options = {"maxiter": MOST_STEPS}
    found = minimize(unlikelihood, at, (points,), method="L-BFGS-B", jac=True, bounds=bounds, options=options)
    signal, *length_scales, op_scale, noise = np.exp(found.x).tolist()
    return Hyperparameters(tuple(length_scales), op_scale, signal, noise)


def unlikelihood(logs: Array, points: Points) -> tuple[float, Array]:
    """Minus the log likelihood of ``points``, but for a constant, and its gradient (Rasmussen & Williams, 2006, 5.8).

    ``logs`` are the logarithms of the signal, the length scales, the scale between ops, and the noise.
    """
    signal, *length_scales, op_scale, noise = np.exp(logs)
    scaled = (points.x - points.x.mean(0)) / length_scales
    r = distances(scaled, points.ops, scaled, points.ops, np.ones(len(length_scales)), op_scale)
    k = covariance(r, signal)
    own = k.copy()
    own[np.diag_indices_from(own)] += noise + points.noise + 1e-8
    factor = cho_factor(own, lower=True)
    alpha = cho_solve(factor, points.y)
    value = 0.5 * points.y @ alpha + np.log(np.diag(factor[0])).sum()
    slope = 0.5 * (cho_solve(factor, np.eye(len(own))) - np.outer(alpha, alpha))  # of the value, by the covariance
    # By the log of a length scale, a Matern-3/2 covariance changes by 3 exp(-sqrt(3) r) (x - x')^2 / l^2.
    near = slope * 3.0 * signal * np.exp(-math.sqrt(3.0) * r)
    by_scale = 2.0 * (near.sum(1) @ scaled**2 - ((near @ scaled) * scaled).sum(0))
    by_op = (near * (points.ops[:, None] != points.ops[None, :])).sum() * 2.0 / op_scale**2
    return float(value), np.array([(slope * k).sum(), *by_scale, by_op, noise * np.trace(slope)])
