"""Phases of a training step, by clock readings at their ends."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from placer.calibration.measuring.phases import Ends, Phases, typical


def test_clearing_gradients_belongs_to_the_update() -> None:
    assert Ends(cleared=11.0, forward=14.0, backward=19.0).phases(10.0, 21.0) == Phases(3.0, 5.0, 1.0 + 2.0)


def test_typical_phases_add_up_to_the_step() -> None:
    seen = [Phases(1.0, 2.0, 1.0), Phases(9.0, 2.0, 1.0), Phases(1.0, 2.0, 1.0)]
    found = typical(seen, 2.0)
    assert found is not None
    assert astuple(found) == pytest.approx((0.5, 1.0, 0.5))
    assert typical([], 2.0) is None
