"""Scores of predictions, with exact numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from placer.calibration.validation.scoring import baseline_scores, repeatability_score, score

from .made_up import cell


def test_score_of_hand_made_cells() -> None:
    cells = [
        cell("a", "cpu", 1.00, 1.0),
        cell("b", "cpu", 1.05, 1.0),
        cell("c", "cpu", 0.80, 1.0),
        cell("d", "cpu", 1.50, 1.0),
        cell("e", "cpu", 0.40, 1.0),
    ]
    found = score(cells)
    assert found is not None
    assert (found.cells, found.unpredicted, found.failed) == (5, 0, 0)
    assert found.median_error == pytest.approx(0.20)
    assert found.p90_error == pytest.approx(0.56)  # errors 0, .05, .2, .5, .6
    assert found.within_10 == 0.4
    assert found.within_25 == 0.6
    assert found.beyond_2x == 0.2  # 0.40 is more than twice too fast
    assert found.inside == 0.6  # 0.8 * 1.25 = 1.0 just reaches it
    assert found.bias == pytest.approx(math.log(1.0 * 1.05 * 0.8 * 1.5 * 0.4) / 5)


def test_what_is_missing_is_counted_and_in_no_number() -> None:
    cells = [cell("a", "cpu", 1.0, 1.0), cell("b", "cpu", None, 1.0), cell("c", "cpu", 9.0, None)]
    found = score(cells)
    assert found is not None
    assert (found.cells, found.unpredicted, found.failed) == (1, 1, 1)
    assert found.median_error == 0.0
    assert found.within_10 == 1.0


def test_baselines_are_scored_as_predictions() -> None:
    cells = [cell("a", "cpu", 1.0, 1.0, roofline=0.5), cell("b", "cpu", 1.0, 2.0, roofline=1.5), cell("c", "cpu", 1, 1)]
    found = baseline_scores([*cells, cell("d", "cpu", 1.0, None, roofline=1.0)])
    assert list(found) == ["roofline"]
    assert (found["roofline"].cells, found["roofline"].failed) == (2, 0)
    assert found["roofline"].median_error == pytest.approx((0.5 + 0.25) / 2)
    assert math.isnan(found["roofline"].inside)


def test_the_measurement_is_scored_against_itself() -> None:
    cells = [replace(cell("a", "cpu", 9.0, 1.0), repeatability=r) for r in (1.0, 1.1, 1.2)]
    found = repeatability_score([*cells, cell("b", "cpu", 1.0, 1.0)])
    assert found is not None
    assert (found.cells, found.median_error) == (3, pytest.approx(0.1))
    assert repeatability_score([cell("b", "cpu", 1.0, 1.0)]) is None


def test_score_without_cells_and_without_pairs() -> None:
    assert score([]) is None
    found = score([cell("a", "cpu", None, 1.0)])
    assert found is not None
    assert found.cells == 0
    assert math.isnan(found.median_error)
    assert math.isnan(found.bias)
