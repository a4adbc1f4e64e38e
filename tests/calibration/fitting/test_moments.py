"""A machine with neighbours: the middle of its moments is learnt, and the interval is as wide as they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from placer.calibration.fitting.device import fit_device
from placer.calibration.fitting.interval import predict_step
from placer.calibration.fitting.nearest import Expectation
from placer.calibration.measuring.journal import StepObservation
from placer.pricing import LONG_STEPS, Z90, CostModel, long_share
from placer.profile import Device

from .made_up import RATES, alike, steps, times, unlike

#: What a neighbour makes of every step while it is there, and steps for which it stays, or stays away, on average.
SLOWED, STAYS = 1.8, 12


def two_states(seed: int) -> Iterator[float]:
    """A neighbour that comes and goes: the factor of one step after another."""
    random, there = np.random.default_rng(seed), False
    while True:
        there ^= bool(random.random() < 1.0 / STAYS)
        yield SLOWED if there else 1.0


def restless(observed: list[StepObservation], seed: int) -> list[StepObservation]:
    return [times(step, factor) for step, factor in zip(observed, two_states(seed), strict=False)]


def fitted(observed: list[StepObservation], expected: Expectation) -> Device:
    return fit_device(observed, RATES, threads=2, expected=expected)


def ratios(fit: Device, unseen: list[StepObservation]) -> tuple[np.ndarray, np.ndarray]:
    """log(measured / predicted) of each step, and the sigma that was promised."""
    model = CostModel(fit)
    found = [(step.seconds, *predict_step(step, model)) for step in unseen]
    off = [math.log(seconds / predicted) for seconds, predicted, _ in found]
    return np.array(off), np.array([math.hypot(fit.interval["base"], fit.interval["ops"] * s) for *_, s in found])


@pytest.mark.parametrize("same_class", [False, True])
def test_a_restless_machine_is_known_by_its_middle_and_its_interval_holds(same_class: bool) -> None:
    fit = fitted(restless(steps(240, 0), 1), alike(base=0.05, ops=1.0) if same_class else unlike())
    off, sigmas = ratios(fit, restless(steps(400, 1), 2))
    assert np.mean(np.abs(off) <= Z90 * sigmas) >= 0.8
    quiet, slow = (float(np.median(ratios(fit, [times(s, f) for s in steps(60, 3)])[0])) for f in (1.0, SLOWED))
    assert quiet < 0.0 < slow  # what is learnt is neither the best moment nor the worst
    assert fit.interval["moment"] > 0.15


def test_a_quiet_machine_has_no_moments() -> None:
    fit = fitted(steps(240, 0), alike(base=0.05, ops=1.0))
    assert fit.interval["moment"] < 0.02
    assert LONG_STEPS not in fit.rates


def test_steps_longer_than_a_turn_wait_for_other_programs() -> None:
    def beside(step: StepObservation) -> StepObservation:
        return times(step, 2.2 ** long_share(step.seconds))

    fit = fitted([beside(s) for s in steps(240, 0)], alike(base=0.05, ops=1.0))
    assert fit.rates[LONG_STEPS] == pytest.approx(2.2, rel=0.15)
    off, _ = ratios(fit, steps(60, 3))
    assert abs(np.median(off)) < 0.1  # prices are those of a step that waits for nobody
