"""A validation report as tables and lines of text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TextIO

from placer.calibration.validation.compare import (
    Score,
    as_the_smallest_batch,
    baseline_scores,
    beside_one_step,
    compare,
    group_by,
    in_the_last_visit,
    larger_batches,
    percent,
    repeatability_score,
    score,
)
from placer.calibration.validation.decisions import decisions, thread_decisions
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.table import Table, show

#: What the baselines are called in tables.
BASELINES = {
    "flops": "FLOPs over the peak rate", "roofline": "roofline of each op", "isolated_sum": "sum of ops timed alone",
}  # fmt: skip
FIGURES = ("cells", "median error", "90th pct", "within 10 %", "within 25 %", "beyond 2x")
#: The measurement's own error, beside that of a prediction.
REPEATS = ("repeats within", "90th pct")


def render(report: Report, stream: TextIO, first: Sequence[Table | str] = ()) -> None:
    """Print every table and note of the report; those of ``first`` stand before all others."""
    show(contents(report, first), stream)


def contents(report: Report, first: Sequence[Table | str] = ()) -> Iterator[Table | str]:
    """What a report says, in order: tables, and lines of text."""
    yield f"profile: {report.profile}"
    yield from first
    devices = group_by(report.cells, attrgetter("device"))
    yield _scores("Prediction error by device", "device", devices)
    yield from _visits(report.cells)
    for device, cells in devices.items():
        yield _beside(device, cells)
        yield from _beside_one_step(device, cells)
        yield _scores(f"{device}, by mode", "mode", group_by(cells, attrgetter("mode")))
        yield _scores(f"{device}, by family", "family", group_by(cells, attrgetter("family")))
    yield from _decision_tables(report.cells)
    yield from _left_out(report)


def _scores(title: str, label: str, groups: Mapping[str, Sequence[Cell]]) -> Table:
    columns = (*FIGURES, *REPEATS, "in interval", "log bias", "not predicted", "failed")
    return compare(title, label, groups, columns, _all_figures)


def _all_figures(cells: Sequence[Cell]) -> tuple[str, ...]:
    reached, repeats = score(cells), repeatability_score(cells)
    apart = percent(repeats.median_error), percent(repeats.p90_error)
    counts = (str(reached.unpredicted), str(reached.failed))
    return (*_figures(reached), *apart, percent(reached.inside), _bias(reached), *counts)


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
    scores = {"placer": score(cells)}
    scores.update((BASELINES.get(name, name), reached) for name, reached in baseline_scores(cells).items())
    scores["as long as the same network's smallest batch"] = as_the_smallest_batch(cells)
    scores["placer, on the same larger batches"] = score(cell for _, cell in larger_batches(cells))
    scores["the measurement itself, last against first"] = repeatability_score(cells)
    rows = tuple((name, *_figures(reached), _bias(reached)) for name, reached in scores.items() if reached.rows)
    return Table(f"{device}, beside simpler models", ("prediction", *FIGURES, "log bias"), rows)


def _beside_one_step(device: str, cells: Sequence[Cell]) -> Iterator[Table]:
    """What a real step of the smallest batch is worth to larger ones."""
    now, later = larger_batches(cells), in_the_last_visit(cells)
    groups = {
        "by themselves": [cell for _, cell in now],
        "the smallest timed just now": beside_one_step(now, 0.0),
        "by themselves, in the last visit": [cell for _, cell in later],
        "the smallest timed in the first": beside_one_step(later, None),
    }
    if now:
        yield _scores(f"{device}, larger batches beside one real step", "prediction", groups)


def _figures(reached: Score) -> tuple[str, ...]:
    shares = (reached.median_error, reached.p90_error, reached.within_10, reached.within_25, reached.beyond_2x)
    return (str(reached.rows), *map(percent, shares))


def _bias(reached: Score) -> str:
    return "-" if math.isnan(reached.bias) else f"{reached.bias:+.2f}"


def _decision_tables(cells: Sequence[Cell]) -> Iterator[Table]:
    for question, scores in (("device", decisions(cells)), ("number of threads", thread_decisions(cells))):
        rows = []
        for rule in scores:
            wrong = f"{rule.wrong} ({percent(rule.wrong / rule.scenarios)})"
            rows.append((rule.rule, wrong, percent(rule.mean_regret), percent(rule.worst_regret), rule.worst or "-"))
        if scores:
            title = f"Decisions on the {question} over {scores[0].scenarios} scenarios"
            columns = ("rule", "wrong outside a 10 % tie", "mean regret", "worst regret", "where")
            yield Table(title, columns, tuple(rows))


def _left_out(report: Report) -> Iterator[Table]:
    """Nothing is dropped silently: skipped networks, steps that failed, steps without a prediction."""
    if report.skipped:
        yield Table("Skipped networks", ("network", "why"), tuple(report.skipped.items()))
    failed = tuple((cell.title, cell.error or "") for cell in report.cells if cell.measured is None)
    if failed:
        yield Table("Not measured", ("cell", "why"), failed)
    reasons = Counter((cell.network, cell.prediction_error or "") for cell in report.cells if cell.predicted is None)
    if reasons:
        rows = tuple((network, str(count), why) for (network, why), count in reasons.items())
        yield Table("Not predicted", ("network", "cells", "why"), rows)
