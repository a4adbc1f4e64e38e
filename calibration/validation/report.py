"""A validation report as tables and lines of text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TextIO

from placer.calibration.validation.one_step import beside, in_the_last_visit
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.reference import reference_tables
from placer.calibration.validation.scores import (
    Score,
    as_the_smallest_batch,
    baseline_scores,
    decisions,
    group_by,
    larger_batches,
    repeatability_score,
    score,
    thread_decisions,
)
from placer.calibration.validation.table import Table, show

#: What the baselines are called in tables.
BASELINES = {
    "flops": "FLOPs over the peak rate", "roofline": "roofline of each op", "isolated_sum": "sum of ops timed alone",
}  # fmt: skip
#: The measurement's own error, beside that of a prediction.
REPEATS = ("repeats within", "90th pct")
FIGURES = ("cells", "median error", "90th pct", "within 10 %", "within 25 %", "beyond 2x")


def render(report: Report, stream: TextIO, what_if: Sequence[Table | str] = ()) -> None:
    """Print every table and note of the report; ``what_if`` stands beside those of the reference systems."""
    show(contents(report, what_if), stream)


def contents(report: Report, what_if: Sequence[Table | str] = ()) -> Iterator[Table | str]:
    """What a report says, in order: tables, and lines of text."""
    yield f"profile: {report.profile}"
    if not what_if or any(cell.device != "cpu" for cell in report.cells):
        yield from reference_tables(report.cells)
    yield from what_if
    devices = group_by(report.cells, lambda cell: cell.device)
    yield _scores("Prediction error by device", "device", devices)
    yield from _visits(report.cells)
    for device, cells in devices.items():
        yield _beside(device, cells)
        yield from _beside_one_step(device, cells)
        yield _scores(f"{device}, by mode", "mode", group_by(cells, lambda cell: cell.mode))
        yield _scores(f"{device}, by family", "family", group_by(cells, lambda cell: cell.family))
    yield from _decision_tables(report.cells)
    yield from _left_out(report)


def _scores(title: str, label: str, groups: dict[str, list[Cell]]) -> Table:
    rows = []
    for name, cells in groups.items():
        found = score(cells)
        if found is not None:
            counts = (str(found.unpredicted), str(found.failed))
            repeats = _repeats(repeatability_score(cells))
            rows.append((name, *_figures(found), *repeats, _percent(found.inside), _bias(found), *counts))
    columns = (label, *FIGURES, *REPEATS, "in interval", "log bias", "not predicted", "failed")
    return Table(title, columns, tuple(rows))


def _repeats(found: Score | None) -> tuple[str, str]:
    """How far apart a cell's own times are: the median over the cells, and the 90th percentile."""
    return ("-", "-") if found is None else (_percent(found.median_error), _percent(found.p90_error))


def _visits(cells: Sequence[Cell]) -> Iterator[str]:
    """How often cells were visited, which says what their repeats compare."""
    counts = Counter(len(cell.visits) for cell in cells if cell.measured is not None)
    several = sum(count for visits, count in counts.items() if visits > 1)
    once = counts.total() - several
    if several:
        yield f"{several} cells visited {max(counts)} times: repeats are of the last and the first"
    if once:
        yield f"{once} cells visited once: repeats are of its halves, seconds apart"


def _beside(device: str, cells: Sequence[Cell]) -> Table:
    """Predictions beside what simpler models say, and beside what the measurement itself is worth."""
    scores: dict[str, Score | None] = {"placer": score(cells)}
    scores.update((BASELINES.get(name, name), found) for name, found in baseline_scores(cells).items())
    scores["as long as the same network's smallest batch"] = as_the_smallest_batch(cells)
    scores["placer, on the same larger batches"] = score(cell for _, cell in larger_batches(cells))
    scores["the measurement itself, last against first"] = repeatability_score(cells)
    rows = tuple((name, *_figures(found), _bias(found)) for name, found in scores.items() if found is not None)
    return Table(f"{device}, beside simpler models", ("prediction", *FIGURES, "log bias"), rows)


def _beside_one_step(device: str, cells: Sequence[Cell]) -> Iterator[Table]:
    """What a real step of the smallest batch is worth to larger ones."""
    now, later = larger_batches(cells), in_the_last_visit(cells)
    groups = {
        "by themselves": [cell for _, cell in now],
        "the smallest timed just now": beside(now, 0.0),
        "by themselves, in the last visit": [cell for _, cell in later],
        "the smallest timed in the first": beside(later, None),
    }
    if now:
        yield _scores(f"{device}, larger batches beside one real step", "prediction", groups)


def _figures(found: Score) -> tuple[str, ...]:
    shares = (found.median_error, found.p90_error, found.within_10, found.within_25, found.beyond_2x)
    return (str(found.cells), *map(_percent, shares))


def _bias(found: Score) -> str:
    return "-" if math.isnan(found.bias) else f"{found.bias:+.2f}"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.1f} %"


def _decision_tables(cells: Sequence[Cell]) -> Iterator[Table]:
    for question, scores in (("device", decisions(cells)), ("number of threads", thread_decisions(cells))):
        rows = tuple(
            (
                row.rule,
                f"{row.wrong} ({_percent(row.wrong / row.scenarios)})",
                _percent(row.mean_regret),
                _percent(row.worst_regret),
                row.worst or "-",
            )
            for row in scores
        )
        if scores:
            title = f"Decisions on the {question} over {scores[0].scenarios} scenarios"
            yield Table(title, ("rule", "wrong outside a 10 % tie", "mean regret", "worst regret", "where"), rows)


def _left_out(report: Report) -> Iterator[Table]:
    """Nothing is dropped silently: skipped networks, steps that failed, steps without a prediction."""
    if report.skipped:
        yield Table("Skipped networks", ("network", "why"), tuple(report.skipped.items()))
    failed = tuple((cell.title, cell.error or "") for cell in report.cells if cell.measured is None)
    if failed:
        yield Table("Not measured", ("cell", "why"), failed)
    reasons = Counter(
        (cell.network, ("" if cell.traceable else "as expected: ") + (cell.prediction_error or ""))
        for cell in report.cells
        if cell.predicted is None
    )
    if reasons:
        rows = tuple((network, str(count), why) for (network, why), count in reasons.items())
        yield Table("Not predicted", ("network", "cells", "why"), rows)
