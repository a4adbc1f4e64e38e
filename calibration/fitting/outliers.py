"""Finds samples that contradict all others: one that another program disturbed would bend everything around it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Standard deviations from what all others predict of it beyond which a sample is an outlier.
OUTLIER = 3.0


def inliers(covariance: Array, y: Array) -> NDArray[np.bool_]:
    """Which of the n targets ``y`` (mean zero) agree with the others; ``covariance`` (n x n) includes noise.

    Leave-one-out errors in closed form (Rasmussen & Williams, 2006, equations 5.10 to 5.12).
    """
    inverse = np.linalg.inv(covariance)
    kept: NDArray[np.bool_] = np.abs(inverse @ y) <= OUTLIER * np.sqrt(np.diag(inverse))
    return kept
