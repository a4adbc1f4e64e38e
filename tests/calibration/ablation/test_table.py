"""The table: a row for each mechanism, changes in percentage points, in bold beyond the noise."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from placer.calibration.ablation import mechanism as module
from placer.calibration.ablation.mechanism import Change, Mechanism, Outcome, median_error
from placer.calibration.ablation.table import markdown, points, row, summary

MECHANISM = Mechanism("a mechanism", nullcontext, (median_error,))
BEFORE = Outcome(np.log(np.full(40, 1.1)), np.repeat([0.0, 1.0], 20))


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRAWS", 100)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Change(0.031, 0.02, 0.044), "**+3.1 (2.0 to 4.4)**"),
        (Change(-0.031, -0.044, -0.02), "**-3.1 (-4.4 to -2.0)**"),
        (Change(0.01, -0.005, 0.03), "+1.0 (-0.5 to 3.0)"),
        (Change(-0.0001, -0.0002, -0.0001), "0.0 (0.0 to 0.0)"),
        (Change(-0.0001, -0.0006, 0.0004), "0.0 (-0.1 to 0.0)"),
        (Change(0.0, 0.0, 0.0), "0"),
    ],
)
def test_a_change_in_points(found: Change, text: str) -> None:
    assert points(found) == text


def test_a_row_is_what_is_worse_without_the_mechanism() -> None:
    after = Outcome(np.log(np.full(40, 1.3)), np.repeat([0.0, 1.0], [10, 30]))
    found = row(MECHANISM, BEFORE, after)
    assert (found.name, found.lines, found.steps) == ("a mechanism", 3, 40)
    assert (found.median.value, found.p90.value) == pytest.approx((0.2, 0.2))
    assert found.wrong.value == pytest.approx(0.25)
    assert found.wrong.low < 0.25 < found.wrong.high
    assert found.matters


def test_a_mechanism_that_changes_nothing_does_not_matter() -> None:
    found = row(MECHANISM, BEFORE, BEFORE)
    assert not found.matters
    assert list(markdown([found]))[2:] == ["| a mechanism | 3 | 40 | 0 | 0 | 0 |"]


def test_no_rows_are_a_table_without_lines() -> None:
    head, alignment = markdown([])
    assert head.count("|") == alignment.count("|") == 7


def test_the_whole_in_a_line() -> None:
    assert summary(BEFORE) == "40 steps: median error 10.0%, p90 10.0%, wrong decisions 50.0%"
