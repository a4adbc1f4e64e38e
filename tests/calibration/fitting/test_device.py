"""A made-up device: fitting recovers the time of steps it never saw, and knows how far off it is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.device import LEAST_POINTS, fit_device, predict_step
from placer.calibration.fitting.family import most_points
from placer.calibration.measuring.journal import StepObservation
from placer.pricing.cost_model import CostModel
from placer.pricing.predict import Z90
from placer.profile.profile import DeviceFit

from .made_up import FRAMEWORK, RATES, steps


@pytest.fixture(scope="module")
def fit() -> DeviceFit:
    return fit_device(steps(160, 0), RATES, device="cpu", threads=2)


@pytest.fixture(scope="module")
def unseen() -> list[StepObservation]:
    return steps(150, 1)


def _errors(fit: DeviceFit, held: Sequence[StepObservation]) -> tuple[list[float], list[float]]:
    """|log(measured / predicted)| of each step, and the sigma that was promised."""
    model = CostModel(fit)
    errors, sigmas = [], []
    for step in held:
        predicted, sigma = predict_step(step, model)
        errors.append(abs(math.log(step.seconds / predicted)))
        sigmas.append(math.hypot(fit.interval["base"], fit.interval["ops"] * sigma))
    return errors, sigmas


def test_unseen_steps_are_predicted_within_ten_percent(fit: DeviceFit, unseen: list[StepObservation]) -> None:
    errors, _ = _errors(fit, unseen)
    assert np.median(errors) < 0.05
    assert np.mean(np.array(errors) < 0.10) > 0.85


def test_nine_in_ten_lie_within_the_interval(fit: DeviceFit, unseen: list[StepObservation]) -> None:
    errors, sigmas = _errors(fit, unseen)
    inside = np.mean([error <= Z90 * sigma for error, sigma in zip(errors, sigmas, strict=True)])
    assert 0.80 <= inside <= 0.98
    assert np.median(sigmas) < 0.15


def test_blocks_that_are_far_off_do_not_widen_the_interval_of_networks(fit: DeviceFit) -> None:
    random = np.random.default_rng(5)
    odd = [replace(s, family="matmul", seconds=s.seconds * math.exp(random.normal(0, 0.5))) for s in steps(160, 2)]
    mixed = [step for pair in zip(steps(160, 0), odd, strict=True) for step in pair]
    # One in four is held out: of every second pair the network.
    with_blocks = fit_device(mixed, RATES, device="cpu", threads=2)
    assert with_blocks.interval["held_out"] < 1.5 * fit.interval["held_out"]


def test_the_frameworks_share_is_recovered(fit: DeviceFit) -> None:
    assert fit.framework["python_call"] == pytest.approx(FRAMEWORK["python_call"], rel=0.5)
    assert min(fit.framework.values()) >= 0.0


def test_what_is_stored_is_plain_numbers_of_the_right_shape(fit: DeviceFit) -> None:
    assert (fit.device, fit.threads, fit.rates) == ("cpu", 2, RATES)
    assert set(fit.families) == {"matmul", "elementwise"}
    for name, family in fit.families.items():
        n = len(family.y)
        assert n == len(family.op_index) == len(family.point_noise) == len(family.weights) <= most_points(name)
        assert family.x.shape == (n, len(family.feature_names)) == (n, len(family.length_scales))
        assert all(type(value) is float for value in (*family.length_scales, family.mean, family.signal, family.noise))
    assert fit.families["elementwise"].ops == ("aten::add", "aten::exp")


def test_what_was_measured_is_counted_in_samples(fit: DeviceFit) -> None:
    taken = [op.family for step in steps(160, 0) for op in step.ops]
    assert {name: family.measured for name, family in fit.families.items()} == Counter(taken)


def test_a_family_with_too_few_samples_stays_at_physics() -> None:
    few = steps(6, 3)
    thin = fit_device(few, RATES, device="cpu", threads=1)
    counted = {name: sum(op.family == name for o in few for op in o.ops) for name in ("matmul", "elementwise")}
    assert set(thin.families) == {name for name, count in counted.items() if count >= LEAST_POINTS}
    assert thin.interval["base"] > 0


def test_disturbed_steps_are_survived(unseen: list[StepObservation]) -> None:
    random = np.random.default_rng(5)
    observed = steps(160, 0)
    for i in random.choice(len(observed), 8, replace=False):
        step = observed[i]
        observed[i] = StepObservation(**{**step.__dict__, "seconds": step.seconds * 10})
    errors, _ = _errors(fit_device(observed, RATES, device="cpu", threads=2), unseen)
    assert np.median(errors) < 0.06
