"""How one machine differs from another, op by op: a Gaussian process that knows that samples come in moments.

A machine's speed varies: a core clocks down, another program fills the cache, for seconds at a time. Ops measured in
the same moment are off together, so a hundred of them say little more about the machine than a few measured minutes
apart. A term of the covariance that decays with the time between two samples says so; no prediction inherits it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.calibration.fitting.outliers import inliers
from placer.pricing import covariance, distances
from placer.profile import FamilyFit

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

#: Points the difference is learnt from, and those its hyperparameters are chosen on, at most.
MOST_POINTS, TUNING_POINTS = 400, 160
#: Steps of a calibration, about a tenth of a second each, over which the machine's speed of the moment is forgotten.
MOMENT = 12.0
#: What the hyperparameters are chosen among: stretches of the length scales, and variances.
STRETCHES, NOISES, DRIFTS = (1.5, 3.0, 6.0), (0.003, 0.01, 0.03, 0.1), (0.0, 0.003, 0.01, 0.03)


@dataclass(frozen=True)
class DifferencePrior:
    """How far two machines are expected to differ, before they are compared.

    ``family_pace`` is the variance of the log of a family's own pace, about that of all families; ``signals`` are the
    variances that its course over the features may have.
    """

    family_pace: float
    signals: tuple[float, ...]


#: Machines of other classes; and machines of one class, which differ by what other programs and temperature do.
OTHER_CLASS = DifferencePrior(0.06, (0.003, 0.01, 0.03, 0.1, 0.3))
SAME_CLASS = DifferencePrior(0.002, (0.001, 0.003, 0.01))


@dataclass(frozen=True)
class DifferenceHyperparameters:
    """How the difference between two machines varies: over what change of features, by how much, and how noisily.

    ``stretch`` multiplies the length scales of the other machine's residual. ``signal``, ``drift`` and ``noise`` are
    variances: of what varies with the features, of the speed of the moment, and of a single op.
    """

    stretch: float
    signal: float
    noise: float
    drift: float


@dataclass(frozen=True)
class ComparedOps:
    """Where two machines were compared: inputs (n x d), op indices, moments, logs of the ratio, and their variances."""

    x: Array
    ops: Indices
    moments: Array
    y: Array
    noise: Array

    def __getitem__(self, some: Indices | NDArray[np.bool_]) -> ComparedOps:
        return ComparedOps(self.x[some], self.ops[some], self.moments[some], self.y[some], self.noise[some])


class Difference:
    """The log of one machine's times over another's, of one family, as a function of an op's features."""

    def __init__(
        self,
        points: ComparedOps,
        known: FamilyFit,
        pace: float,
        prior: DifferencePrior,
        chosen: DifferenceHyperparameters | None = None,
    ) -> None:
        """``pace`` is the log ratio of ops of all families. ``chosen`` None: the likeliest are chosen."""
        points = points[np.random.default_rng(0).permutation(len(points.y))[:MOST_POINTS]]
        self._scales, self._op_scale = np.asarray(known.length_scales), known.op_scale
        self._pace, self._prior = pace, prior
        self.chosen = chosen or self._likeliest(points[np.arange(min(TUNING_POINTS, len(points.y)))])
        self._points = points[inliers(self._observed(points), points.y - pace)]
        self._inverse = np.linalg.inv(self._observed(self._points))
        self._alpha = self._inverse @ (self._points.y - pace)

    def predict(self, x: Array, ops: Indices) -> tuple[Array, Array]:
        """Mean and variance of the log ratio at ``x`` (n x d), at the machine's usual speed."""
        varying = self._varying(x, ops, self._points, self.chosen.stretch)
        k = self._prior.family_pace + self.chosen.signal * varying
        known = np.einsum("ij,ij->i", k @ self._inverse, k)
        variance = self._prior.family_pace + self.chosen.signal - known
        return self._pace + k @ self._alpha, np.maximum(variance, 0.0)

    def _varying(self, x: Array, ops: Indices, points: ComparedOps, stretch: float) -> Array:
        """Covariance of what varies with the features, at a variance of 1."""
        scales, op_scale = stretch * self._scales, stretch * self._op_scale
        return covariance(distances(x, ops, points.x, points.ops, scales, op_scale), 1.0)

    def _observed(self, points: ComparedOps) -> Array:
        """Covariance of the samples themselves."""
        varying = self._varying(points.x, points.ops, points, self.chosen.stretch)
        return self._with_noise(varying, _together(points.moments), points.noise, self.chosen)

    def _with_noise(self, varying: Array, together: Array, noise: Array, chosen: DifferenceHyperparameters) -> Array:
        k = self._prior.family_pace + chosen.signal * varying + chosen.drift * together
        k[np.diag_indices_from(k)] += chosen.noise + noise + 1e-9
        return k

    def _likeliest(self, points: ComparedOps) -> DifferenceHyperparameters:
        """The likeliest of a small grid: some dozen samples cannot choose among more."""
        y, together = points.y - self._pace, _together(points.moments)
        found: list[tuple[float, DifferenceHyperparameters]] = []
        for stretch in STRETCHES:
            varying = self._varying(points.x, points.ops, points, stretch)
            for signal, noise, drift in itertools.product(self._prior.signals, NOISES, DRIFTS):
                candidate = DifferenceHyperparameters(stretch, signal, noise, drift)
                k = self._with_noise(varying, together, points.noise, candidate)
                found.append((_log_likelihood(k, y), candidate))
        return max(found, key=lambda pair: pair[0])[1]


def _together(moments: Array) -> Array:
    """How much of the speed of the moment two samples share, from 0 to 1."""
    return np.exp(-np.abs(moments[:, None] - moments[None, :]) / MOMENT)


def _log_likelihood(k: Array, y: Array) -> float:
    """Of targets ``y`` with mean zero (Rasmussen & Williams, 2006, equation 2.30), but for a constant."""
    factor = np.linalg.cholesky(k)
    white = np.linalg.solve(factor, y)
    return float(-0.5 * white @ white - np.log(np.diag(factor)).sum())
