"""Costs of the framework, found again in phases that were made by them."""

from __future__ import annotations

import numpy as np
import pytest

from placer.calibration.fitting.framework import LEAST_SHOWING, counts_to_fit, measured_pace, positive_costs

from .made_up import FRAMEWORK, steps

COSTS = np.array([2e-5, 1e-6, 3e-6])
NOTHING_KNOWN = np.zeros(3)


def phases(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(counts, seconds, weights) of so many phases, with two percent of noise."""
    random = np.random.default_rng(seed)
    ops, functions = random.integers(1, 40, count), random.integers(0, 30, count)
    counts = np.column_stack([np.ones(count), ops, functions]).astype(float)
    seconds = counts @ COSTS * np.exp(random.normal(0.0, 0.02, count))
    return counts, seconds, 1.0 / seconds


def test_costs_are_found_and_phases_far_off_are_left_out() -> None:
    counts, seconds, weights = phases(200)
    assert positive_costs(counts, seconds, weights, NOTHING_KNOWN, 0.4) == pytest.approx(COSTS, rel=0.05)
    seconds[::15] *= 10.0
    assert positive_costs(counts, seconds, weights, NOTHING_KNOWN, 0.4) == pytest.approx(COSTS, rel=0.1)


def test_no_cost_is_below_zero() -> None:
    counts, seconds, weights = phases(200)
    less = seconds - 4e-6 * counts[:, 2]  # as if functions gave time back
    found = positive_costs(counts, less, weights, NOTHING_KNOWN, 0.4)
    assert found.min() == 0.0 == found[2]


def test_what_few_phases_leave_open_is_as_it_is_known() -> None:
    counts, seconds, weights = phases(4)
    counts[:, 2] = 0.0  # no function ran
    seconds = counts @ COSTS
    known = np.array([4e-5, 2e-6, 6e-6])
    near, far = (positive_costs(counts, seconds, weights, known, spread) for spread in (0.05, 0.4))
    assert near[2] == far[2] == pytest.approx(known[2])
    assert COSTS[0] < far[0] < near[0] < known[0]
    assert positive_costs(*phases(500), known, 0.4) == pytest.approx(COSTS, rel=0.1)


def test_a_pace_is_the_middle_of_enough_phases_that_are_more_than_noise() -> None:
    counts, seconds, weights = phases(40)
    elsewhere = counts @ COSTS / 3.0
    assert measured_pace(elsewhere, seconds, weights) == pytest.approx(3.0, rel=0.02)
    disturbed = np.where(np.arange(40) % 5 == 0, 20.0, 1.0) * seconds
    assert measured_pace(elsewhere, disturbed, weights) == pytest.approx(3.0, rel=0.1)
    few = LEAST_SHOWING - 1
    assert measured_pace(elsewhere[:few], seconds[:few], weights[:few]) is None
    assert measured_pace(elsewhere, 0.01 * seconds, weights) is None


def test_only_what_ran_here_or_costs_something_elsewhere_is_fitted() -> None:
    assert counts_to_fit(steps(5, 0), {}) == list(FRAMEWORK)
    assert counts_to_fit(steps(5, 0), {"update": 1e-6, "autograd_node": 0.0}) == [*FRAMEWORK, "autograd_node", "update"]
