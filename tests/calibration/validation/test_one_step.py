"""What one real step is worth to larger batches, by hand and by the records of three machines with a GPU."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from placer.calibration.validation import record
from placer.calibration.validation.one_step import beside, in_the_last_visit
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.report import render
from placer.calibration.validation.scores import larger_batches, score

from .made_up import cell

RECORDS = Path(__file__).parents[3] / "calibration" / "records"
THREE = ("nvidia-h100-80gb-hbm3-16-core", "nvidia-h200-16-core", "nvidia-h200-16-core-second")


def sized(batch: int, predicted: float | None, measured: float, *visits: float) -> Cell:
    return replace(cell("net", "cuda", predicted, measured), batch=batch, visits=visits)


def test_larger_batches_are_moved_by_the_smallest_one() -> None:
    cells = [sized(8, 1.0, 2.2), sized(1, 1.0, 2.0), sized(64, 4.0, 6.0)]
    assert [(small.batch, large.batch) for small, large in larger_batches(cells)] == [(1, 8), (1, 64)]
    near, far = beside(larger_batches(cells), 0.0)
    assert (near.predicted, far.predicted) == pytest.approx((2.0, 4.0 * 2.0**0.25))
    (older, _) = beside(larger_batches(cells), None)
    assert older.predicted == pytest.approx(2.0**0.5)
    assert in_the_last_visit(cells) == []


def test_another_visit_is_another_time() -> None:
    cells = [sized(1, 1.0, 2.0, 1.5, 2.0, 2.5), sized(8, 1.0, 3.0, 2.5, 3.0, 3.5)]
    ((small, large),) = in_the_last_visit(cells)
    assert (small.measured, large.measured) == (1.5, 3.5)
    (moved,) = beside([(small, large)], None)
    assert (moved.predicted, moved.measured) == (pytest.approx(1.5**0.5), 3.5)


def test_a_report_says_what_a_step_is_worth() -> None:
    stream = io.StringIO()
    render(Report("", {}, "profile", (sized(1, 1.0, 2.0), sized(8, 1.0, 2.0))), stream)
    table = stream.getvalue().partition("cuda, larger batches beside one real step\n")[2].splitlines()
    (alone,), (moved,) = ([line for line in table if line.startswith(name)] for name in ("by them", "the smallest"))
    assert "50.0 %" in alone
    assert "50.0 %" not in moved


def test_beside_one_real_step_three_machines_keep_to_what_is_promised() -> None:
    """Larger batches on their GPUs, by the predictions that the records keep: 7.5 % in the median, 22 % in the tail."""
    moved: list[Cell] = []
    for name in THREE:
        cells = [cell for cell in record.load(RECORDS / name / "measurements.json").cells if cell.device != "cpu"]
        moved += beside(larger_batches(cells), 0.0)
    found = score(moved)
    assert found is not None
    assert found.cells > 300
    assert (found.median_error, found.p90_error) < (0.075, 0.22)
    assert found.p90_error < 0.22
    assert 0.85 <= found.inside <= 0.95
