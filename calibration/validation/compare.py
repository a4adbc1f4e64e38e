"""How far predictions are from measurements: one comparison for cells of a record and for whatever others published."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol, TypeVar

from placer.calibration.measuring.timing import percentile
from placer.calibration.validation.record import Cell
from placer.calibration.validation.table import Table
from placer.decision import recorded

T = TypeVar("T")
Label = TypeVar("Label", bound=Hashable)


class Compared(Protocol):
    """Something predicted beside its measurement, with the bounds of the predicted 90 % interval; None: not known."""

    @property
    def predicted(self) -> float | None: ...
    @property
    def measured(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


@dataclass(frozen=True)
class Score:
    """Predictions beside measurements over a set of rows.

    Errors are ``|predicted / measured - 1|``. ``bias`` is the mean of ``log(predicted / measured)``: below 0,
    predictions are too fast; ``median_ratio`` the median of ``predicted / measured``. ``inside`` is the share of
    measurements within the predicted 90 % interval. ``unpredicted`` and ``failed`` count rows that have no prediction,
    or no measurement; they are in no other number, and what no row tells is NaN.
    """

    rows: int
    unpredicted: int
    failed: int
    median_error: float
    p90_error: float
    within_10: float
    within_25: float
    beyond_2x: float
    inside: float
    bias: float
    median_ratio: float


def score(rows: Iterable[Compared]) -> Score:
    """The score of these rows."""
    everything = list(rows)
    ratios, inside, failed = [], [], 0
    for row in everything:
        if row.measured is None:
            failed += 1
            continue
        if row.predicted is not None:
            ratios.append(row.predicted / row.measured)
        if row.low is not None and row.high is not None:
            inside.append(row.low <= row.measured <= row.high)
    errors = [abs(ratio - 1.0) for ratio in ratios]
    return Score(
        rows=len(ratios),
        unpredicted=len(everything) - failed - len(ratios),
        failed=failed,
        median_error=quantile(errors, 0.5),
        p90_error=quantile(errors, 0.9),
        within_10=mean(error <= 0.10 for error in errors),
        within_25=mean(error <= 0.25 for error in errors),
        beyond_2x=mean(not 0.5 <= ratio <= 2.0 for ratio in ratios),
        inside=mean(inside),
        bias=mean(map(math.log, ratios)),
        median_ratio=quantile(ratios, 0.5),
    )


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which this share of the values lies; NaN where there are none."""
    ordered = sorted(values)
    return percentile(ordered, share) if ordered else math.nan


def mean(values: Iterable[float]) -> float:
    """NaN where there are no values."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else math.nan


def group_by(items: Iterable[T], label: Callable[[T], Label]) -> dict[Label, list[T]]:
    """Items by label, labels in the order they first appear."""
    groups: dict[Label, list[T]] = defaultdict(list)
    for item in items:
        groups[label(item)].append(item)
    return dict(groups)


def compare(
    title: str,
    label: str,
    groups: Mapping[str, Sequence[T]],
    columns: Sequence[str],
    figures: Callable[[Sequence[T]], Iterable[str]],
) -> Table:
    """A table with a line for each group that is not empty: its name, and the ``figures`` of its rows."""
    lines = tuple((name, *figures(rows)) for name, rows in groups.items() if rows)
    return Table(title, (label, *columns), lines)


def percent(share: float, digits: int = 1) -> str:
    """For people; ``-`` for NaN."""
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def baseline_scores(cells: Iterable[Cell]) -> dict[str, Score]:
    """What each baseline scores as a prediction, by its name in ``Cell.baselines``; a baseline has no interval."""
    predicted: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        for name, seconds in cell.baselines.items():
            if cell.measured is not None and seconds > 0.0:
                predicted[name].append(replace(cell, predicted=seconds, low=None, high=None))
    return {name: score(some) for name, some in predicted.items()}


def as_the_smallest_batch(cells: Iterable[Cell]) -> Score:
    """What "a larger batch takes as long as the same network's smallest" scores, where that was measured.

    It needs a measurement, and no model.
    """
    pairs = larger_batches(cells)
    return score(replace(cell, predicted=smallest.measured, low=None, high=None) for smallest, cell in pairs)


def larger_batches(cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
    """Each measured cell of a larger batch, beside that of the smallest batch of its network, mode and place.

    The smallest comes first.
    """
    measured = [cell for cell in cells if cell.measured is not None]
    pairs = []
    for group in group_by(measured, attrgetter("network", "mode", "device", "threads")).values():
        ordered = sorted(group, key=attrgetter("batch"))
        pairs += [(ordered[0], cell) for cell in ordered if cell.batch > ordered[0].batch]
    return pairs


def in_the_last_visit(cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
    """Larger batches as they were measured last, beside the smallest as it was first; none of one visit."""
    return [
        (replace(smallest, measured=smallest.visits[0]), replace(cell, measured=cell.visits[-1]))
        for smallest, cell in larger_batches(cells)
        if len(smallest.visits) > 1 and len(cell.visits) > 1
    ]


def beside_one_step(pairs: Iterable[tuple[Cell, Cell]], age: float | None) -> list[Cell]:
    """The second of each pair as it is predicted when the first was timed ``age`` seconds ago; None: another day.

    Pairs of which one was not predicted are left out.
    """
    moved: list[Cell] = []
    for timed, cell in pairs:
        if not (cell.predicted and cell.low and cell.high and timed.predicted and timed.measured):
            continue
        weight = recorded.counts(cell.predicted, timed.predicted, age)
        ratio = timed.measured / timed.predicted
        time = recorded.moved(cell.predicted, cell.low, cell.high, ratio=ratio, weight=weight)
        moved.append(replace(cell, predicted=time.step_seconds, low=time.low, high=time.high))
    return moved


def repeatability_score(cells: Iterable[Cell]) -> Score:
    """The measurement as a prediction of itself: how far apart its first and last visit are, or its two halves."""
    return score(
        replace(cell, predicted=cell.repeatability, measured=1.0, low=None, high=None)
        for cell in cells
        if cell.repeatability is not None
    )
