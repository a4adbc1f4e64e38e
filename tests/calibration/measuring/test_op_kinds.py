"""One op of every kind of the table is measured, and scales the cycles of its kind."""

from __future__ import annotations

import itertools
import time

from placer.calibration.measuring.op_kinds import MOST, PROBES, measure_kinds
from placer.pricing import PROBED, op_lines

RATES = {"dispatch_seconds": 1e-6, "flops/float32": 1e11, "bytes_per_second": 1e10}


def test_every_kind_has_a_probe_but_what_only_waits() -> None:
    assert set(PROBES) == set(op_lines()) - {"waits"}


def test_every_probe_runs_and_is_traced() -> None:
    found = measure_kinds(1, RATES, seconds=60.0, clock=time.perf_counter)
    assert set(found) == {f"{PROBED}{kind}" for kind in PROBES}
    assert all(1.0 / MOST <= factor <= MOST for factor in found.values())


def test_a_machine_on_which_everything_takes_long_has_large_factors() -> None:
    ticks = itertools.count()
    assert set(measure_kinds(1, RATES, seconds=1e9, clock=lambda: 10.0 * next(ticks)).values()) == {MOST}


def test_no_time_measures_nothing() -> None:
    ticks = itertools.count()
    assert measure_kinds(1, RATES, seconds=0.5, clock=lambda: float(next(ticks))) == {}
