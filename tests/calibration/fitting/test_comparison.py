"""Two machines compared over all ops: whether they are of one class, and how much of the difference lasts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from placer.calibration.fitting.transfer import OTHER_CLASS, PER_READING, Comparison, Expectation, compare
from placer.calibration.measuring.speed_probe import USUAL_READING
from placer.profile.profile import DeviceFit

from .made_up import RATES, slower, steps


def seen(
    reference: DeviceFit, factor: float, reading: float = 0.0, *, moments: int = 400, there: float = 0.0, **own: float
) -> Comparison:
    """A machine of the reference's class that takes ``factor`` times as long, at this reading (there: that one)."""
    fit = replace(reference, rates={**RATES, USUAL_READING: there})
    factors = {"matmul": factor, "elementwise": factor, **own}
    ops = [op for step in slower(steps(60, 7), **factors) for op in step.ops]
    return compare(ops, Expectation(fit, same_class=True), moments, {**RATES, USUAL_READING: reading})


def test_the_further_off_a_minute_is_the_more_of_it_lasts(reference: DeviceFit) -> None:
    def trust(factor: float, moments: int) -> float:
        found = seen(reference, factor, moments=moments)
        assert found.same_class
        assert found.believed == pytest.approx(found.trust * found.pace)
        return found.trust

    assert trust(1.05, 400) < trust(1.25, 400) < trust(1.6, 400) < 1.0
    assert trust(1.05, 400) == pytest.approx(trust(1 / 1.05, 400), rel=0.1)
    assert trust(1.25, 40) < trust(1.25, 400)  # a few seconds say less than a minute


def test_what_the_readings_explain_of_a_pace_lasts(reference: DeviceFit) -> None:
    contended = seen(reference, 1.5, 1.4e-4, there=1e-4)
    assert contended.same_class
    assert contended.likely == pytest.approx(PER_READING * math.log(1.4))
    assert contended.believed == pytest.approx(math.log(1.5), abs=0.02)
    # Contention slows down each family in its own way.
    assert contended.prior.family_pace > seen(reference, 1.0).prior.family_pace
    assert seen(reference, 1.5, 1.4e-4, there=1e-4, moments=5).trust < contended.trust
    assert seen(reference, 2.4, 1.8e-4, there=1e-4).same_class  # more than twice as long, but for a reason
    assert not seen(reference, 2.4).same_class


def test_families_that_each_have_a_pace_of_their_own_make_another_class(reference: DeviceFit) -> None:
    found = seen(reference, 1.6, elementwise=1.0)
    assert (found.prior, found.trust, found.same_class) == (OTHER_CLASS, 1.0, False)


@pytest.mark.parametrize("factor", [0.3, 3.0, 1e6])
def test_a_machine_far_faster_or_slower_is_of_another_class(reference: DeviceFit, factor: float) -> None:
    found = seen(reference, factor)
    assert (found.prior, found.trust, found.same_class) == (OTHER_CLASS, 1.0, False)
