"""Evaluates the fitted residuals: Gaussian-process regression in plain numpy.

``placer.calibration.fitting`` chooses the hyperparameters. Here they are only used, so that pricing needs neither scipy
nor a pickle. The formulas are Rasmussen & Williams, *Gaussian Processes for Machine
Learning* (2006), 2.25 and 2.26, with a Matern-3/2 covariance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placer.lazy import cached_property
from placer.pricing.work import PLACE_SIZES
from placer.profile import FamilyFit

Array = NDArray[np.float64]
#: Op indices; a fit keeps them as it was given them.
Indices = NDArray[np.int64] | NDArray[np.float64]

#: Index of an op that calibration never saw: as far from every known op as those are from one another.
UNKNOWN_OP = -1

#: Points that a variance is computed from, at most: it costs far more than a mean and need not be as exact. Points are
#: kept in random order; fewer of them give a larger variance, never a smaller one.
_DOUBTED = 200

#: The inverses that were found last, and how many are kept. CPUs whose numbers are scaled from one CPU's have the same
#: points (``estimate.on_other_cpu``).
_inverses: dict[tuple[object, ...], Array] = {}
_KEPT = 96

#: How far outside the samples an input still counts as in range: one octave, since inputs are log2 of amounts.
MARGIN = 1.0


def covariance(distance: Array, signal: float) -> Array:
    """Matern-3/2 covariance of scaled distances."""
    scaled = -math.sqrt(3.0) * distance
    result: Array = np.exp(scaled)
    # In place, since fresh memory for every term would take longer than the arithmetic.
    np.subtract(signal, np.multiply(scaled, signal, out=scaled), out=scaled)
    result *= scaled
    return result


def distances(
    left: Array, left_ops: Indices, right: Array, right_ops: Indices, length_scales: Array, op_scale: float
) -> Array:
    """Scaled Euclidean distances, n x m. Two different ops are ``sqrt(2) / op_scale`` apart at the least."""
    a, b = left / length_scales, right / length_scales
    squared: Array = (-2.0 * a) @ b.T
    squared += (a * a).sum(1)[:, None]
    squared += (b * b).sum(1)[None, :]
    squared += (left_ops[:, None] != right_ops[None, :]) * (2.0 / op_scale**2)
    np.maximum(squared, 0.0, out=squared)
    return np.sqrt(squared, out=squared)


def with_weights(fit: FamilyFit) -> FamilyFit:
    """The fit with the weights of its posterior mean, ``K^-1 (y - mean)``, so that pricing does not solve for them."""
    return replace(fit, weights=Residual(replace(fit, weights=np.empty(0))).weights)


class Residual:
    """The posterior of one family's log residual, computed on first use."""

    def __init__(self, fit: FamilyFit) -> None:
        self.fit = fit
        self._x = fit.x.astype(np.float64)
        self._scales = np.asarray(fit.length_scales, dtype=np.float64)
        self._index = {op: i for i, op in enumerate(fit.ops)}

    def op_index(self, labels: Sequence[str]) -> int:
        """The index of an op by the first of its ``labels`` that is known."""
        return next((self._index[label] for label in labels if label in self._index), UNKNOWN_OP)

    @cached_property
    def weights(self) -> Array:
        """The weight of every point's covariance in the posterior mean."""
        if len(self.fit.weights) == len(self._x):
            return self.fit.weights.astype(np.float64)
        aims = self.fit.y.astype(np.float64) - self.fit.mean
        return np.asarray(np.linalg.solve(self._noisy(len(self._x)), aims), dtype=np.float64)

    @cached_property
    def _inverse(self) -> Array:
        """The inverse of the covariance of the first ``_DOUBTED`` points."""
        fit = self.fit
        points = [array[:_DOUBTED].tobytes() for array in (fit.x, fit.op_index, fit.point_noise)]
        key = (*points, fit.length_scales, fit.op_scale, fit.signal)
        found = _inverses.get(key)
        if found is None:
            found = _inverses[key] = np.asarray(np.linalg.inv(self._noisy(_DOUBTED)))
            if len(_inverses) > _KEPT:
                oldest, *_ = _inverses  # in one go: other threads change it too
                _inverses.pop(oldest, None)
        return found

    def _noisy(self, most: int) -> Array:
        """The covariance of the first ``most`` points, observation noise included."""
        k = covariance(self._distances(self._x[:most], self.fit.op_index[:most], most), self.fit.signal)
        k[np.diag_indices_from(k)] += self.fit.point_noise[:most].astype(np.float64) + 1e-9 * self.fit.signal
        return k

    def _distances(self, x: Array, ops: Indices, most: int | None = None) -> Array:
        """Distances from ``x`` to the first ``most`` points."""
        points, theirs = self._x[:most], self.fit.op_index[:most]
        return distances(x, ops, points, theirs, self._scales, self.fit.op_scale)

    def covers(self, x: Array, ops: Indices) -> NDArray[np.bool_]:
        """Which queries are of a sampled op, at inputs no further than ``MARGIN`` outside its family's samples.

        The context of an op does not count: beyond the largest cache a larger reuse distance changes nothing. None is
        covered where no sample of the family was taken on this very machine.
        """
        if not self.fit.measured:
            return np.zeros(len(x), dtype=bool)
        of_the_op = [name not in PLACE_SIZES for name in self.fit.feature_names]
        low, high = self._x.min(0) - MARGIN, self._x.max(0) + MARGIN
        inside = ((x >= low) & (x <= high))[:, of_the_op].all(axis=1)
        return np.asarray(inside & (ops != UNKNOWN_OP))

    def predict(self, x: Array, ops: Indices) -> tuple[Array, Array]:
        """Mean and variance (without observation noise) of the log residual at ``x`` (n x d) for ops given by index."""
        k = covariance(self._distances(x, ops), self.fit.signal)
        mean = self.fit.mean + k @ self.weights
        near = k[:, : len(self._inverse)]
        variance = self.fit.signal - ((near @ self._inverse) * near).sum(1)
        return mean, np.maximum(variance, 0.0)
