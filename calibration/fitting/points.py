"""The points that a residual rests on: merged where they are alike, without outliers, and condensed to a few."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer.calibration.fitting.kernel import Hyperparameters
from placer.calibration.fitting.outliers import inliers
from placer.pricing import covariance, distances

Array = NDArray[np.float64]
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
