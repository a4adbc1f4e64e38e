"""A made-up machine that changes its pace while it is measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from placer.calibration import fitting
from placer.calibration.observation import StepObservation
from placer.calibration.pace import WINDOW, steadied
from placer.costs import CostModel
from placer.profile import DeviceFit

from .test_fitting import RATES, steps
from .test_transfer import slower


@pytest.fixture(scope="module")
def usual() -> DeviceFit:
    return fitting.fit_device(steps(200, 0), RATES, device="cpu", threads=2)


def at_pace(observed: list[StepObservation], pace: float) -> list[StepObservation]:
    """All of it, what stands between the ops too, so many times slower."""
    return [
        replace(after, seconds=pace * before.seconds)
        for before, after in zip(observed, slower(observed, matmul=pace, elementwise=pace), strict=True)
    ]


def off(found: list[StepObservation], true: list[StepObservation]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([math.log(a.seconds / b.seconds) for a, b in zip(found, true, strict=True)])


def test_a_slow_half_is_brought_to_the_pace_of_the_prices(usual: DeviceFit) -> None:
    true = steps(4 * WINDOW, 3)
    half = len(true) // 2
    found = steadied([*true[:half], *at_pace(true[half:], 1.4)], CostModel(usual))
    assert np.median(np.abs(off(found, true))) < 0.03
    assert abs(np.median(off(found, true)[half + WINDOW :])) < 0.03
    ops = [(a.seconds, b.seconds) for x, y in zip(found, true, strict=True) for a, b in zip(x.ops, y.ops, strict=True)]
    assert np.median([abs(math.log(a / b)) for a, b in ops if a and b]) < 0.03


def test_where_nothing_tells_a_step_stays_as_it_is(usual: DeviceFit) -> None:
    unknown = [replace(s, ops=tuple(replace(op, seconds=None) for op in s.ops)) for s in steps(5, 3)]
    assert steadied(unknown, CostModel(usual)) == unknown
    assert steadied([], CostModel(usual)) == []


def test_what_the_steps_are_made_of_stays(usual: DeviceFit) -> None:
    slow = at_pace(steps(WINDOW, 3), 1.3)
    for before, after in zip(slow, steadied(slow, CostModel(usual)), strict=True):
        assert (after.name, after.counts, after.spread) == (before.name, before.counts, before.spread)
        pairs = list(zip(before.ops, after.ops, strict=True))
        assert all((a.op, a.features, a.count) == (b.op, b.features, b.count) for a, b in pairs)
        factors = {round((b.seconds or 0.0) / (a.seconds or 1.0), 6) for a, b in pairs}
        assert factors == {round(after.seconds / before.seconds, 6)}
