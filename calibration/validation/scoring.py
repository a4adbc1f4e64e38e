"""How good predictions were: pure functions on validation cells."""

from __future__ import annotations

import math
import statistics
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


def error_of(cell: Cell) -> float | None:
    """``|predicted / measured - 1|``, None where either is missing."""
    if cell.predicted is None or cell.measured is None:
        return None
    return abs(cell.predicted / cell.measured - 1.0)


def score(cells: Iterable[Cell]) -> Score | None:
    """The score of these cells, None without any; its shares are NaN when none is both predicted and measured."""
    everything = list(cells)
    if not everything:
        return None
    pairs = [(c.predicted, c.measured) for c in everything if c.predicted is not None and c.measured is not None]
    errors = sorted(abs(predicted / measured - 1.0) for predicted, measured in pairs)
    ratios = [predicted / measured for predicted, measured in pairs]
    intervals = [
        c.low <= c.measured <= c.high
        for c in everything
        if c.measured is not None and c.low is not None and c.high is not None
    ]
    return Score(
        cells=len(pairs),
        unpredicted=sum(c.predicted is None and c.measured is not None for c in everything),
        failed=sum(c.measured is None for c in everything),
        median_error=percentile(errors, 0.5) if errors else math.nan,
        p90_error=percentile(errors, 0.9) if errors else math.nan,
        within_10=_share(error <= 0.10 for error in errors),
        within_25=_share(error <= 0.25 for error in errors),
        beyond_2x=_share(not 0.5 <= ratio <= 2.0 for ratio in ratios),
        inside=_share(intervals),
        bias=_mean(math.log(ratio) for ratio in ratios),
    )


def baseline_scores(cells: Iterable[Cell]) -> dict[str, Score]:
    """What each baseline scores as a prediction, by its name in ``Cell.baselines``; a baseline has no interval."""
    measured = [cell for cell in cells if cell.measured is not None]
    names = dict.fromkeys(name for cell in measured for name in cell.baselines)
    scores = {}
    for name in names:
        having = [
            replace(cell, predicted=cell.baselines[name], low=None, high=None)
            for cell in measured
            if cell.baselines.get(name, 0.0) > 0.0
        ]
        found = score(having)
        if found is not None:
            scores[name] = found
    return scores


def repeatability_score(cells: Iterable[Cell]) -> Score | None:
    """The measurement as a prediction of itself: how far one half of its rounds is from the other."""
    halves = [
        replace(cell, predicted=cell.repeatability, measured=1.0, low=None, high=None)
        for cell in cells
        if cell.repeatability is not None
    ]
    return score(halves)


def all_steps_score(cells: Iterable[Cell]) -> Score | None:
    """The score against the medians of all steps, those at another speed than the usual one included."""
    return score(
        replace(cell, measured=statistics.median(cell.anyhow), low=None, high=None) for cell in cells if cell.anyhow
    )


def _share(flags: Iterable[bool]) -> float:
    return _mean(float(flag) for flag in flags)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan
