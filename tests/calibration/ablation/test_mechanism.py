"""What switching a mechanism off changes, and how many lines are there for its sake."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from placer.calibration.ablation import mechanism as module
from placer.calibration.ablation.mechanism import (
    Mechanism,
    change,
    is_wrong,
    lines_of,
    median_error,
    p90_error,
)

#: A constant
#: with two lines of comment.
CONSTANT, OTHER = (
    1.0,
    2.0,
), 3.0
ANNOTATED: float = 1.0
HERE = "placer.calibration.ablation.mechanism"


def test_errors_are_shares_of_what_was_measured() -> None:
    errors = np.log([1.1, 0.9, 1.1, 1.5])
    assert median_error(errors) == pytest.approx(0.1)
    assert p90_error(np.log([1.1] * 9 + [2.0])) == pytest.approx(0.19)
    both = np.stack([errors, -errors])
    assert median_error(both).tolist() == [median_error(errors), median_error(-errors)]


def test_the_same_steps_are_drawn_for_both() -> None:
    before = np.log(np.linspace(1.0, 3.0, 200))
    found = change(median_error, before, np.log1p(np.expm1(before) + 0.05))
    assert (found.value, found.low, found.high) == pytest.approx((0.05, 0.05, 0.05))
    assert found.beyond_noise


def test_noise_is_not_beyond_noise() -> None:
    random = np.random.default_rng(1)
    before = random.normal(0.0, 0.2, 300)
    found = change(median_error, before, random.permutation(before))
    assert found.low < found.value < found.high
    assert not found.beyond_noise


def test_nothing_changed_is_no_change_at_all() -> None:
    errors = np.array([0.1, 0.2])
    assert change(median_error, errors, errors.copy()) == module.Change(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("predicted", "measured", "other", "wrong"),
    [(1.0, 2.0, 1.5, True), (1.0, 1.6, 1.5, False), (2.0, 1.0, 1.5, True), (2.0, 1.4, 1.5, False)],
)
def test_a_choice_is_wrong_where_it_loses_more_than_a_tie(
    predicted: float, measured: float, other: float, wrong: bool
) -> None:
    assert is_wrong(predicted, measured, other) == wrong


def test_lines_are_those_of_the_code() -> None:
    assert lines_of(median_error) == lines_of(f"{HERE}:median_error") == 3
    assert lines_of(f"{HERE}:Outcome") == lines_of(module.Outcome) > 5
    assert lines_of(f"{HERE}:DRAWS") == lines_of(f"{HERE}:INTERVAL") == 2
    whole = len(inspect.getsource(module).splitlines())
    assert lines_of(module) == lines_of(HERE) == whole
    assert Mechanism("", _nothing, (median_error, HERE)).lines == whole + 3


def test_lines_of_a_constant_are_its_own_and_the_comments_above() -> None:
    assert lines_of(f"{__name__}:CONSTANT") == lines_of(f"{__name__}:OTHER") == 6
    assert lines_of(f"{__name__}:ANNOTATED") == 1


def test_what_is_not_there_has_no_lines() -> None:
    with pytest.raises(AttributeError):
        lines_of(f"{HERE}:no_such_name")
    with pytest.raises(ValueError, match="has no constant annotations"):
        lines_of(f"{HERE}:annotations")


@contextmanager
def _nothing() -> Iterator[None]:
    yield
