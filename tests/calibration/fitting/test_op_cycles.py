"""Cycles of the table of ops: found again in made-up samples, and written as the table that holds them."""

from __future__ import annotations

import numpy as np
import pytest

from placer.calibration.fitting.op_cycles import Cycles, Samples, fit_one, table_of
from placer.pricing import STARTING
from placer.pricing.op_table import read_cycles


@pytest.mark.parametrize(("each", "begun", "shared"), [(40.0, 0.0, True), (40.0, 0.0, False), (3.0, 5000.0, False)])
def test_cycles_are_found_again(each: float, begun: float, shared: bool) -> None:
    units = np.geomspace(1e4, 1e7, 8)
    starts = units / 100.0 if begun else np.zeros(8)
    cores, start = np.tile([1.0, 2.0], 4), np.full(8, 1e-6)
    seconds = start + (each * units + begun * starts) * start / STARTING / (cores if shared else 1.0)
    found = fit_one(Samples(units, starts, cores, np.zeros(8), start, seconds))
    assert found is not None
    priced = found.each * units + found.begun * starts
    assert found.shared is shared
    assert priced == pytest.approx(each * units + begun * starts, rel=0.1)


def test_the_table_holds_what_was_fitted() -> None:
    fitted = {f"op_{number}": Cycles(number / 7.0, 10.0 * number, number % 2 == 0) for number in range(40)}
    read = read_cycles(table_of(fitted))
    assert {name: pytest.approx(values, rel=0.01) for name, values in fitted.items()} == read
