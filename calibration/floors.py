"""Fits the physical part of a family's cost: a latency, and what each FLOP, byte, step, ... takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from placer.costs import op_label
from placer.operators import Work, amounts

Array = NDArray[np.float64]

#: An op with fewer samples than this is priced with its family's costs.
LEAST_OWN = 8
#: Rounds of reweighting: samples further off than three times the median error count less and less.
ROUNDS = 4


def fit_floor(works: Sequence[Work], seconds: Array) -> dict[str, float]:
    """Non-negative costs for the family (``name``) and for each op sampled often enough (``name@op``)."""
    rows = [amounts(work) for work in works]
    names = list(rows[0])
    matrix = np.array([[1.0, *(row[name] for name in names)] for row in rows])
    labels = np.array([op_label(work) for work in works])
    least = float(np.quantile(seconds, 0.02))
    result = dict(zip(("latency", *names), _non_negative(matrix, seconds, least), strict=True))
    for label in sorted(set(labels)):
        own = labels == label
        if own.sum() >= LEAST_OWN:
            costs = _non_negative(matrix[own], seconds[own], float(seconds[own].min()))
            result.update({f"{name}@{label}": cost for name, cost in zip(("latency", *names), costs, strict=True)})
    return result


def _non_negative(matrix: Array, seconds: Array, least: float) -> list[float]:
    """Least squares on relative errors with no cost below zero, and a latency of at least half of ``least``."""
    scaled = matrix / seconds[:, None]
    # Columns differ by twelve orders of magnitude; brought to one size, the solver sees them all.
    size = np.maximum(np.abs(scaled).max(0), 1e-30)
    weights = np.ones(len(seconds))
    costs = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        regression = LinearRegression(positive=True, fit_intercept=False)
        regression.fit(scaled / size * weights[:, None], weights)
        costs = regression.coef_ / size
        error = np.abs(np.log(np.maximum(scaled @ costs, 1e-3)))
        weights = np.sqrt(1.0 / np.maximum(error / max(3.0 * float(np.median(error)), 0.05), 1.0))
    costs[0] = max(costs[0], 0.5 * least)
    return [float(c) for c in costs]
