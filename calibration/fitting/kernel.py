"""The covariance between ops as a scikit-learn kernel, with its gradient, for choosing hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, NormalizedKernelMixin, StationaryKernelMixin

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
