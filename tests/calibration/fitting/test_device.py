"""A made-up device: fitting recovers the time of steps it never saw, and knows how far off it is."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.device import fit_device, limits
from placer.calibration.fitting.interval import UNKNOWN, at_another_hour, predict_step
from placer.calibration.fitting.nearest import Expectation
from placer.calibration.measuring.journal import StepObservation
from placer.pricing import Z90, CostModel, cpu_edition, framework_seconds
from placer.profile import Device

from .made_up import FAMILIES, FRAMEWORK, RATES, UNLIKE, alike, device, in_phases, slower, steps, times, unlike


def fitted(observed: list[StepObservation], expected: Expectation | None = None, **rates: float) -> Device:
    """What these steps teach of the device, beside a machine of another class."""
    return fit_device(observed, {**RATES, **rates}, threads=2, expected=expected or unlike())


def errors(fit: Device, unseen: list[StepObservation]) -> tuple[np.ndarray, np.ndarray]:
    """|log(measured / predicted)| of each step, and the sigma that was promised."""
    model = CostModel(fit)
    found = [(step.seconds, *predict_step(step, model)) for step in unseen]
    off = [abs(math.log(seconds / predicted)) for seconds, predicted, _ in found]
    sigmas = [math.hypot(fit.interval["base"], fit.interval["ops"] * sigma) for _, _, sigma in found]
    return np.array(off), np.array(sigmas)


def error(fit: Device, unseen: list[StepObservation]) -> float:
    return float(np.median(errors(fit, unseen)[0]))


def inside(fit: Device, unseen: list[StepObservation]) -> float:
    """The share of steps that lie in the interval."""
    off, sigmas = errors(fit, unseen)
    return float(np.mean(off <= Z90 * sigmas))


def ratio(fit: Device, unseen: list[StepObservation], *families: str) -> float:
    """The median of predicted over measured times of the ops of these families."""
    ops = [op for step in unseen for op in step.ops if op.family in families]
    seconds, _, _ = CostModel(fit).price_works([op.work() for op in ops])
    return float(np.median([price / (op.seconds or 0.0) for price, op in zip(seconds, ops, strict=True)]))


def test_unseen_steps_are_predicted_within_ten_percent_and_nine_in_ten_within_the_interval() -> None:
    fit, unseen = fitted(steps(160, 0)), steps(150, 1)
    off, sigmas = errors(fit, unseen)
    assert np.median(off) < 0.05
    assert np.mean(off < 0.10) > 0.85
    assert inside(fit, unseen) >= 0.80
    assert np.median(sigmas) < 0.15


def test_the_more_is_measured_the_closer_is_what_was_not() -> None:
    unseen = steps(150, 1)
    nothing, little, much = (error(fit, unseen) for fit in (device(UNLIKE), fitted(steps(8, 0)), fitted(steps(160, 0))))
    assert little < 0.5 * nothing
    assert much < 0.7 * little


def test_what_is_stored_is_plain_numbers_and_says_what_it_rests_on() -> None:
    fit = fitted(steps(160, 0))
    assert (fit.device, fit.threads, fit.rates) == ("cpu", 2, RATES)
    assert (fit.reference, fit.edition) == (UNLIKE, cpu_edition())
    assert fit.framework["python_call"] == pytest.approx(FRAMEWORK["python_call"], rel=0.5)
    assert min(fit.framework.values()) >= 0.0
    taken = Counter(op.family for step in steps(160, 0) for op in step.ops)
    assert {name: family.measured for name, family in fit.families.items()} == taken
    for name, family in fit.families.items():
        assert len(family.numbers) == len(device().families[name].numbers)
        assert set(family.offsets) == {"", *device(UNLIKE).families[name].offsets}
        assert family.sigma > device(UNLIKE).families[name].sigma
        assert all(type(value) is float for value in (*family.numbers, *family.offsets.values(), family.sigma))


def test_a_family_never_measured_here_is_priced_at_this_machines_pace() -> None:
    both = slower(steps(60, 7), matmul=1.5, elementwise=1.5)
    fit = fitted([s for s in both if all(op.family == "elementwise" for op in s.ops)], Expectation(device()))
    assert fit.families["matmul"].measured == 0
    assert fit.families["matmul"].numbers == device().families["matmul"].numbers
    assert ratio(fit, steps(20, 9), "matmul") == pytest.approx(1.5, rel=0.1)
    _, sigma, _ = CostModel(fit).price_works([op.work() for s in steps(20, 9) for op in s.ops if op.family == "matmul"])
    assert min(sigma) > 0.3  # and that it is a guess is known


def test_many_steps_outweigh_a_machine_that_is_wrong() -> None:
    here, unseen = (slower(steps(n, seed), matmul=6.0, elementwise=0.3) for n, seed in ((160, 10), (100, 8)))
    assert error(fitted(here, Expectation(device())), unseen) < 0.08


def test_disturbed_steps_are_survived() -> None:
    observed = steps(160, 0)
    for i in np.random.default_rng(5).choice(len(observed), 8, replace=False):
        observed[i] = times(observed[i], 10.0)
    assert error(fitted(observed, Expectation(device())), steps(150, 1)) < 0.06


def test_whole_steps_tell_the_pace_of_a_machine_of_another_class() -> None:
    """Half of them take longer than predicted, also where they take longer than all that was found in them."""
    longer = [[replace(step, seconds=1.4 * step.seconds) for step in steps(n, seed)] for n, seed in ((60, 7), (100, 8))]
    fit = fitted(longer[0], Expectation(device()))
    model = CostModel(fit)
    assert np.median([step.seconds / predict_step(step, model)[0] for step in longer[1]]) == pytest.approx(1.0, abs=0.1)


# --- a machine of the same class ----------------------------------------------------------------------------------


def test_a_machine_of_the_same_class_keeps_what_the_other_knows() -> None:
    fit = fitted(slower(steps(30, 7), matmul=1.1, elementwise=1.1), alike())
    for name, known in device().families.items():
        found = fit.families[name]
        assert found.numbers == pytest.approx(known.numbers, abs=0.2)
        moved = [found.offset((op,)) - known.offset((op,)) for op in known.offsets]
        assert 0.0 < np.median(moved) < math.log(1.1)  # a minute's difference is believed in part
    assert ratio(fit, steps(20, 9), *FAMILIES) == pytest.approx(1.05, abs=0.04)


def test_the_rates_that_bound_an_op_are_those_of_its_class() -> None:
    misread = {name: 2.0 * rate for name, rate in limits(device()).items()}
    assert set(misread) == set(RATES)
    assert fitted(steps(30, 7), alike(), **misread).rates == RATES
    half_way = {"bytes_per_second": math.sqrt(misread["bytes_per_second"] * RATES["bytes_per_second"])}
    assert fitted(steps(30, 7), **misread).rates == {**misread, **half_way}


# --- the framework ------------------------------------------------------------------------------------------------


def test_phases_timed_apart_tell_costs_apart_that_grow_together() -> None:
    costs = {"step": 2e-6, "python_call": 1e-6, "training_step": 2e-5, "autograd_node": 3e-6}
    known = Expectation(replace(device(), framework={}))

    def worst(apart: bool) -> float:
        found = fitted(in_phases(80, costs, apart=apart), known).framework
        return max(abs(found[name] / costs[name] - 1.0) for name in ("python_call", "autograd_node"))

    assert worst(apart=True) < 0.1
    assert worst(apart=False) > 0.2


def test_the_framework_of_another_class_goes_at_its_own_pace() -> None:
    own = {name: 3.0 * cost for name, cost in FRAMEWORK.items()}
    here = steps(40, 7, costs=own)
    misled = {"dispatch_seconds": 9.0 * RATES["dispatch_seconds"]}  # timed in a moment that was not the usual
    fit = fitted(here, Expectation(device()), **misled)
    found = framework_seconds(here[0].counts, fit.framework)
    assert found == pytest.approx(framework_seconds(here[0].counts, own), rel=0.15)


def test_what_takes_no_time_on_a_machine_of_the_class_takes_none_here() -> None:
    known = alike()
    known = Expectation(replace(known.fit, framework={**FRAMEWORK, "forward_op": 0.0}), same_class=True)
    assert fitted(steps(60, 7), known).framework["forward_op"] == 0.0


# --- the interval -------------------------------------------------------------------------------------------------


def restless(count: int, seed: int, spread: float) -> list[StepObservation]:
    random = np.random.default_rng(seed)
    return [replace(step, seconds=step.seconds * math.exp(random.normal(0, spread))) for step in steps(count, seed)]


def test_the_interval_of_the_same_class_is_kept_and_moves_with_what_is_seen_here() -> None:
    known = alike(base=0.1, ops=0.5, held_out=0.2)
    fits = [fitted(restless(count, 7, spread), known) for count, spread in ((20, 0.3), (300, 0.3), (300, 0.0))]
    little, much, steady = (fit.interval for fit in fits)
    assert steady["base"] < 0.1 < little["base"] < much["base"]
    assert little["held_out"] > little["base"]
    kept, moved = (inside(fit, restless(150, 8, 0.3)) for fit in (replace(fits[1], interval=steady), fits[1]))
    assert kept + 0.15 < moved < 0.95  # nine steps in ten are the goal, and 75 show it in part
    blocks = [replace(step, family="matmul") for step in steps(40, 7)]
    expected = {**at_another_hour(known.fit.interval), "moment": 0.0}
    assert fitted(blocks, known).interval == pytest.approx(expected, abs=0.01)


def test_a_few_steps_of_another_class_tell_no_interval() -> None:
    fit = fitted(steps(8, 7))
    assert fit.interval == {**at_another_hour(UNKNOWN), "moment": 0.0}
    assert inside(fit, steps(150, 1)) > 0.9
