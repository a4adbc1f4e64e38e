"""A made-up device: fitting recovers the time of steps it never saw, and knows how far off it is."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from placer.calibration.fitting.device import fit_device
from placer.calibration.fitting.interval import predict_step
from placer.calibration.fitting.nearest import Expectation
from placer.calibration.measuring.journal import StepObservation
from placer.pricing import Z90, CostModel
from placer.pricing.timeline import LONG_STEPS, long_share
from placer.profile import Device

from .made_up import FAMILIES, RATES, UNLIKE, alike, device, slower, steps, times, unlike


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
    nothing, little = (error(one, unseen) for one in (device(UNLIKE), fitted(steps(8, 0))))
    assert little < 0.5 * nothing
    assert np.median(off) < 0.7 * little  # the more is measured, the closer is what was not


def test_a_family_never_measured_here_is_priced_at_this_machines_pace() -> None:
    both = slower(steps(60, 7), matmul=1.5, elementwise=1.5)
    fit = fitted([s for s in both if all(op.family == "elementwise" for op in s.ops)], Expectation(device()))
    assert fit.families["matmul"].measured == 0
    assert fit.families["matmul"].numbers == device().families["matmul"].numbers
    assert ratio(fit, steps(20, 9), "matmul") == pytest.approx(1.5, rel=0.1)
    _, sigma, _ = CostModel(fit).price_works([op.work() for s in steps(20, 9) for op in s.ops if op.family == "matmul"])
    assert min(sigma) > 0.3  # and that it is a guess is known


def test_disturbed_steps_are_survived() -> None:
    observed = steps(160, 0)
    for i in np.random.default_rng(5).choice(len(observed), 8, replace=False):
        observed[i] = times(observed[i], 10.0)
    assert error(fitted(observed, Expectation(device())), steps(150, 1)) < 0.06


def test_a_machine_of_the_same_class_keeps_what_the_other_knows() -> None:
    fit = fitted(slower(steps(30, 7), matmul=1.1, elementwise=1.1), alike())
    for name, known in device().families.items():
        found = fit.families[name]
        assert found.numbers == pytest.approx(known.numbers, abs=0.2)
        moved = [found.offset((op,)) - known.offset((op,)) for op in known.offsets]
        assert 0.0 < np.median(moved) < math.log(1.1)  # a minute's difference is believed in part
    assert ratio(fit, steps(20, 9), *FAMILIES) == pytest.approx(1.05, abs=0.04)


def middle(fit: Device, unseen: list[StepObservation]) -> float:
    """log(measured / predicted) in the middle."""
    model = CostModel(fit)
    return float(np.median([math.log(step.seconds / predict_step(step, model)[0]) for step in unseen]))


#: What a neighbour makes of every step while it is there, and steps for which it stays, or stays away, on average.
SLOWED, STAYS = 1.8, 12


def two_states(seed: int) -> Iterator[float]:
    """A neighbour that comes and goes: the factor of one step after another."""
    random, there = np.random.default_rng(seed), False
    while True:
        there ^= bool(random.random() < 1.0 / STAYS)
        yield SLOWED if there else 1.0


def beside_another(observed: list[StepObservation], seed: int) -> list[StepObservation]:
    return [times(step, factor) for step, factor in zip(observed, two_states(seed), strict=False)]


@pytest.mark.parametrize("same_class", [False, True])
def test_a_restless_machine_is_known_by_its_middle_and_its_interval_holds(same_class: bool) -> None:
    fit = fitted(beside_another(steps(240, 0), 1), alike(base=0.05, ops=1.0) if same_class else unlike())
    assert inside(fit, beside_another(steps(400, 1), 2)) >= 0.8
    quiet, slow = (middle(fit, [times(s, f) for s in steps(60, 3)]) for f in (1.0, SLOWED))
    assert quiet < 0.0 < slow  # what is learnt is neither the best moment nor the worst
    assert fit.interval["moment"] > 0.15


def test_steps_longer_than_a_turn_wait_for_other_programs() -> None:
    def beside(step: StepObservation) -> StepObservation:
        return times(step, 2.2 ** long_share(step.seconds))

    fit = fitted([beside(s) for s in steps(240, 0)], alike(base=0.05, ops=1.0))
    assert fit.rates[LONG_STEPS] == pytest.approx(2.2, rel=0.15)
    assert abs(middle(fit, steps(60, 3))) < 0.1  # prices are those of a step that waits for nobody
