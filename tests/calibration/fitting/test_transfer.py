"""What a machine measured at length teaches one that was measured in passing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.fitting.device import fit_device, predict_step
from placer.calibration.fitting.transfer import Expectation
from placer.calibration.measuring.journal import StepObservation
from placer.pricing.cost_model import CostModel
from placer.pricing.framework import framework_seconds
from placer.profile.profile import DeviceFit

from .made_up import FRAMEWORK, RATES, slower, steps


def error(fit: DeviceFit, held: list[StepObservation]) -> float:
    model = CostModel(fit)
    return float(np.median([abs(math.log(predict_step(s, model)[0] / s.seconds)) for s in held]))


def test_few_steps_and_a_reference_are_worth_more_than_few_steps(reference: DeviceFit) -> None:
    here, unseen = (slower(steps(n, seed), matmul=1.8, elementwise=1.1) for n, seed in ((4, 7), (100, 8)))
    alone = fit_device(here, RATES, device="cpu", threads=2)
    taught = fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(reference))
    assert error(taught, unseen) < 0.5 * error(alone, unseen)


def test_a_family_never_measured_here_is_priced_at_this_machines_pace(reference: DeviceFit) -> None:
    both = slower(steps(60, 7), matmul=1.5, elementwise=1.5)
    here = [s for s in both if all(op.family == "elementwise" for op in s.ops)]
    fit = fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(reference))
    unseen = [op for s in steps(20, 9) for op in s.ops if op.family == "matmul"]
    seconds, sigma, _ = CostModel(fit).price_works([op.work() for op in unseen])
    ratio = np.array(seconds) / np.array([op.seconds for op in unseen])
    assert np.median(ratio) == pytest.approx(1.5, rel=0.1)
    assert min(sigma) > 0.1  # and that it is a guess is known


def test_many_steps_outweigh_a_reference_that_is_wrong(reference: DeviceFit) -> None:
    wrong = replace(reference, rates=dict(RATES))
    here, unseen = (slower(steps(n, seed), matmul=6.0, elementwise=0.3) for n, seed in ((160, 10), (100, 8)))
    taught = fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(wrong))
    assert error(taught, unseen) < 0.08


def test_a_machine_of_the_same_class_keeps_what_the_other_knows(reference: DeviceFit) -> None:
    here = slower(steps(30, 7), matmul=1.1, elementwise=1.1)
    taught = fit_device(here, RATES, device="cpu", threads=2, expected=Expectation(reference, same_class=True))
    for name, known in reference.families.items():
        found = taught.families[name]
        assert np.array_equal(found.x, known.x)
        assert np.array_equal(found.op_index, known.op_index)
        assert (found.length_scales, found.parameters) == (known.length_scales, known.parameters)
        moved = found.y - known.y
        assert 0.0 < np.median(moved) < math.log(1.1)  # a minute's difference is believed in part


@pytest.mark.parametrize("pace", [1.4, 1 / 1.4])
def test_a_machine_of_the_same_class_that_is_far_off_its_pace_is_believed(reference: DeviceFit, pace: float) -> None:
    here, unseen = (slower(steps(n, seed), matmul=pace, elementwise=pace) for n, seed in ((400, 7), (100, 8)))
    expected = Expectation(reference, same_class=True)
    taught = fit_device(here, RATES, device="cpu", threads=2, expected=expected)
    ops = [op for step in unseen for op in step.ops]
    ratio = np.array(CostModel(taught).price_works([op.work() for op in ops])[0]) / [op.seconds or 0.0 for op in ops]
    assert abs(math.log(np.median(ratio))) < 0.2 * abs(math.log(pace))
    assert np.array_equal(taught.families["matmul"].x, reference.families["matmul"].x)  # and what it knows is kept


def test_the_framework_of_another_class_goes_at_its_own_pace(reference: DeviceFit) -> None:
    own = {name: 3.0 * cost for name, cost in FRAMEWORK.items()}
    here = [
        replace(step, seconds=step.seconds + sum((own[n] - FRAMEWORK[n]) * count for n, count in step.counts.items()))
        for step in steps(40, 7)
    ]
    misled = {**RATES, "dispatch_seconds": 9.0 * RATES["dispatch_seconds"]}  # timed in a moment that was not the usual
    taught = fit_device(here, misled, device="cpu", threads=2, expected=Expectation(reference))
    found = framework_seconds(here[0].counts, taught.framework)
    assert found == pytest.approx(framework_seconds(here[0].counts, own), rel=0.15)


@pytest.mark.parametrize("same_class", [True, False])
def test_a_few_seconds_know_what_a_framework_takes_elsewhere(reference: DeviceFit, same_class: bool) -> None:
    expected = Expectation(reference, same_class=same_class)
    taught = fit_device(steps(3, 7), RATES, device="cpu", threads=2, expected=expected)
    for name, cost in reference.framework.items():
        assert taught.framework[name] == pytest.approx(cost, rel=0.5, abs=1e-9)
    assert not fit_device(steps(3, 7), RATES, device="cpu", threads=2).framework
