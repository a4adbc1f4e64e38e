"""A made-up device: fitting recovers the time of steps it never saw, and knows how far off it is."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.device import LEAST_POINTS, fit_device, predict_step
from placer.calibration.fitting.family import MORE_POINTS
from placer.calibration.fitting.transfer import Expectation
from placer.calibration.measuring.journal import StepObservation
from placer.pricing import Z90, CostModel
from placer.profile import DeviceFit

from .made_up import FRAMEWORK, RATES, in_phases, steps


def errors(fit: DeviceFit, unseen: list[StepObservation]) -> tuple[np.ndarray, np.ndarray]:
    """|log(measured / predicted)| of each step, and the sigma that was promised."""
    model = CostModel(fit)
    found = [(step.seconds, *predict_step(step, model)) for step in unseen]
    off = [abs(math.log(seconds / predicted)) for seconds, predicted, _ in found]
    sigmas = [math.hypot(fit.interval["base"], fit.interval["ops"] * sigma) for _, _, sigma in found]
    return np.array(off), np.array(sigmas)


def test_unseen_steps_are_predicted_within_ten_percent_and_nine_in_ten_within_the_interval(
    reference: DeviceFit,
) -> None:
    off, sigmas = errors(reference, steps(150, 1))
    assert np.median(off) < 0.05
    assert np.mean(off < 0.10) > 0.85
    assert 0.80 <= np.mean(off <= Z90 * sigmas) <= 0.98
    assert np.median(sigmas) < 0.15


def test_what_is_stored_is_plain_numbers_of_the_right_shape(reference: DeviceFit) -> None:
    assert (reference.device, reference.threads, reference.rates) == ("cpu", 2, RATES)
    assert reference.framework["python_call"] == pytest.approx(FRAMEWORK["python_call"], rel=0.5)
    assert min(reference.framework.values()) >= 0.0
    taken = [op.family for step in steps(160, 0) for op in step.ops]
    assert {name: family.measured for name, family in reference.families.items()} == Counter(taken)
    for name, family in reference.families.items():
        n = len(family.y)
        assert n == len(family.op_index) == len(family.point_noise) == len(family.weights) <= MORE_POINTS[name]
        assert family.x.shape == (n, len(family.feature_names)) == (n, len(family.length_scales))
        assert all(type(value) is float for value in (*family.length_scales, family.mean, family.signal, family.noise))


def test_a_family_with_too_few_samples_stays_at_physics() -> None:
    few = steps(6, 3)
    thin = fit_device(few, RATES, device="cpu", threads=1)
    counted = Counter(op.family for step in few for op in step.ops)
    assert set(thin.families) == {name for name, count in counted.items() if count >= LEAST_POINTS}
    assert thin.interval["base"] > 0


def test_disturbed_steps_are_survived() -> None:
    observed = steps(160, 0)
    for i in np.random.default_rng(5).choice(len(observed), 8, replace=False):
        observed[i] = replace(observed[i], seconds=10 * observed[i].seconds)
    off, _ = errors(fit_device(observed, RATES, device="cpu", threads=2), steps(150, 1))
    assert np.median(off) < 0.06


def test_phases_timed_apart_tell_costs_apart_that_grow_together() -> None:
    costs = {"step": 2e-6, "python_call": 1e-6, "training_step": 2e-5, "autograd_node": 3e-6}

    def worst(apart: bool) -> float:
        found = fit_device(in_phases(80, costs, apart=apart), RATES, device="cpu", threads=2).framework
        return max(abs(found[name] / costs[name] - 1.0) for name in ("python_call", "autograd_node"))

    assert worst(apart=True) < 0.1
    assert worst(apart=False) > 0.2


def interval_taught_by(known: DeviceFit, observed: list[StepObservation], spread: float) -> dict[str, float]:
    random = np.random.default_rng(4)
    here = [replace(step, seconds=step.seconds * math.exp(random.normal(0, spread))) for step in observed]
    taught = fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(known, same_class=True))
    return dict(taught.interval)


def test_the_interval_of_the_same_class_is_kept_and_moves_with_what_is_seen_here(reference: DeviceFit) -> None:
    known = replace(reference, interval={"base": 0.1, "ops": 0.5, "held_out": 0.2})
    little, much, steady = (interval_taught_by(known, steps(n, 7), by) for n, by in ((20, 0.3), (300, 0.3), (300, 0.0)))
    assert steady["base"] < 0.1 < little["base"] < much["base"]
    assert much["base"] > 0.2
    assert little["held_out"] > little["base"]
    blocks = [replace(step, family="matmul") for step in steps(40, 7)]
    assert interval_taught_by(reference, blocks, 0.0) == pytest.approx(reference.interval, abs=0.01)  # no network
