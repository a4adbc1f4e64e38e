"""Chooses the hyperparameters of a family's residual by marginal likelihood."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

from placer.calibration.fitting.kernel import Hyperparameters, OpMatern
from placer.calibration.fitting.points import Points

Array = NDArray[np.float64]

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
