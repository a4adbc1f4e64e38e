"""Cycles of the table of ops: found again in made-up samples, and written into the table."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from placer.calibration.lab.published.cycles import Cycles, Samples, fit_one, written
from placer.pricing.ops import OPS_FILE, table
from placer.pricing.physics import STARTING


def samples(each: float, begun: float, *, shared: bool) -> Samples:
    """Eight calls, half of them on two cores, which help where the op is shared."""
    units, none = np.geomspace(1e4, 1e7, 8), np.zeros(8)
    starts = units / 100.0 if begun else none
    cores, start = np.tile([1.0, 2.0], 4) if shared else np.ones(8), np.full(8, 1e-6)
    seconds = start + (each * units + begun * starts) * start / STARTING / cores
    return Samples(units, starts, cores, none, start, seconds)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("each", "begun"), [(40.0, 0.0), (3.0, 5000.0)])
def test_cycles_are_found_again(each: float, begun: float, shared: bool) -> None:
    given = samples(each, begun, shared=shared)
    found = fit_one(given)
    assert found is not None
    priced = found.each * given.units + found.begun * given.starts
    assert priced == pytest.approx(each * given.units + begun * given.starts, rel=0.1)


def test_the_table_holds_what_was_fitted_and_keeps_the_rest_as_it_is() -> None:
    text = OPS_FILE.read_text(encoding="utf-8")
    assert written(text, {}) == text
    fitted = {row.op: Cycles(number / 7.0, 10.0 * (number % 3)) for number, row in enumerate(table()[:40])}
    before, after = (
        {row["op"]: row for row in csv.DictReader(io.StringIO(each))} for each in (text, written(text, fitted))
    )
    for name, cycles in fitted.items():
        row = after.pop(name)
        found = float(row["cycles"]), float(row["start_cycles"] or 0.0)
        assert found == pytest.approx(tuple(cycles), rel=0.01)
        fitted_columns = {"cycles": row["cycles"], "start_cycles": row["start_cycles"]}
        assert row == {**before[name], **fitted_columns}
    assert after == {name: row for name, row in before.items() if name not in fitted}
