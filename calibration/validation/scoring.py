"""How good predictions were: pure functions on validation cells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from placer.calibration.measuring.timing import percentile
from placer.calibration.validation.record import Cell


@dataclass(frozen=True)
class Score:
    """Predictions beside measurements over a set of cells.

    Errors are ``|predicted / measured - 1|``. ``bias`` is the mean of ``log(predicted / measured)``: below 0,
    predictions are too fast. ``inside`` is the share of measurements within the predicted 90 % interval.
    ``unpredicted`` and ``failed`` count cells that have no prediction, or no measurement; they are in no other number.
    """

    cells: int
    unpredicted: int
    failed: int
    median_error: float
    p90_error: float
    within_10: float
    within_25: float
    beyond_2x: float
    inside: float
    bias: float


def score(cells: Iterable[Cell]) -> Score | None:
    """The score of these cells, None without any; its shares are NaN when none is both predicted and measured."""
    everything = list(cells)
    if not everything:
        return None
    measured = [c for c in everything if c.measured is not None]
    ratios = [c.predicted / c.measured for c in measured if c.predicted is not None and c.measured is not None]
    errors = sorted(abs(ratio - 1.0) for ratio in ratios)
    intervals = [
        c.low <= c.measured <= c.high
        for c in measured
        if c.measured is not None and c.low is not None and c.high is not None
    ]
    return Score(
        cells=len(ratios), unpredicted=len(measured) - len(ratios), failed=len(everything) - len(measured),
        median_error=percentile(errors, 0.5) if errors else math.nan,
        p90_error=percentile(errors, 0.9) if errors else math.nan,
        within_10=_mean(error <= 0.10 for error in errors), within_25=_mean(error <= 0.25 for error in errors),
        beyond_2x=_mean(not 0.5 <= ratio <= 2.0 for ratio in ratios),
        inside=_mean(intervals),
        bias=_mean(math.log(ratio) for ratio in ratios),
    )  # fmt: skip


def baseline_scores(cells: Iterable[Cell]) -> dict[str, Score]:
    """What each baseline scores as a prediction, by its name in ``Cell.baselines``; a baseline has no interval."""
    measured = [cell for cell in cells if cell.measured is not None]
    scores = {
        name: score(
            replace(cell, predicted=cell.baselines[name], low=None, high=None)
            for cell in measured
            if cell.baselines.get(name, 0.0) > 0.0
        )
        for name in dict.fromkeys(name for cell in measured for name in cell.baselines)
    }
    return {name: found for name, found in scores.items() if found is not None}


def repeatability_score(cells: Iterable[Cell]) -> Score | None:
    """The measurement as a prediction of itself: how far one half of its rounds is from the other."""
    halves = [
        replace(cell, predicted=cell.repeatability, measured=1.0, low=None, high=None)
        for cell in cells
        if cell.repeatability is not None
    ]
    return score(halves)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan
