"""Samples that all others contradict: one that a neighbour disturbed would bend everything around it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Standard deviations from what all others say of it at which a sample is left out.
OUTLIER = 3.0


def uncontradicted(covariance: Array, y: Array) -> NDArray[np.bool_]:
    """Which of the n targets ``y`` (mean zero) the others do not contradict; ``covariance`` (n x n) includes noise.

    Leave-one-out errors in closed form (Rasmussen & Williams, 2006, equations 5.10 to 5.12).
    """
    inverse = np.linalg.inv(covariance)
    kept: NDArray[np.bool_] = np.abs(inverse @ y) <= OUTLIER * np.sqrt(np.diag(inverse))
    return kept
