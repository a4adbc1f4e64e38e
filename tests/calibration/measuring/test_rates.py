"""What fresh pages cost is the least of several counts: no sample corrects it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from placer import machine
from placer.calibration import probing as targeting
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.rates import FRESH_BYTES, FreshPages, measure_rates, recount_fresh_pages
from placer.calibration.progress import silent
from placer.profile.profile import Profile

FRESH = "fresh_seconds_per_byte"
#: Counts what this process computes, in seconds: a busy machine changes no rate.
CLOCK = time.process_time
#: Seconds per byte, far above what any machine takes.
TOO_HIGH = 1e-6


def test_the_least_count_is_kept() -> None:
    fresh_and_warm = iter([30e-3, 1.1e-3, 4.0e-3, 1.5e-3, 29e-3, 1.0e-3])
    pages = FreshPages(lambda _: next(fresh_and_warm))
    pages.count()
    assert pages.seconds_per_byte() == pytest.approx(28.9e-3 / FRESH_BYTES)
    pages.count()
    assert pages.seconds_per_byte() == pytest.approx(2.9e-3 / FRESH_BYTES)
    pages.count()
    assert pages.seconds_per_byte() == pytest.approx(3.0e-3 / FRESH_BYTES)


def test_disturbed_writes_to_warm_pages_make_no_negative_cost() -> None:
    fresh_and_warm = iter([4.0e-3, 9.0e-3])
    pages = FreshPages(lambda _: next(fresh_and_warm))
    pages.count()
    assert pages.seconds_per_byte() == 0.0


@pytest.mark.parametrize(("before", "kept"), [(TOO_HIGH, False), (0.0, True)])
def test_a_recount_keeps_the_cheaper_count(before: float, kept: bool) -> None:
    again = recount_fresh_pages({FRESH: before, "bytes_per_second": 1e10}, seconds=1.0, clock=CLOCK)
    assert again["bytes_per_second"] == 1e10
    assert (again[FRESH] == before) is kept
    assert again[FRESH] <= before


def test_the_rates_of_a_cpu_know_fresh_pages() -> None:
    rates = measure_rates("cpu", seconds=1.0, clock=CLOCK)
    assert 0.0 < rates[FRESH] < TOO_HIGH


def test_a_high_count_at_the_start_is_corrected_at_the_end_of_a_calibration(
    tmp_path: Path, handmade_profile: Profile
) -> None:
    path, (target,) = tmp_path / "p.journal", targeting.targets(["cpu"], quick=True)
    key = (target.device, target.threads)
    journal = Journal(path, machine.fingerprint())
    journal.add_rates(*key, {**handmade_profile.fit("cpu").rates, FRESH: TOO_HIGH}, 0.0)
    targeting.measure(target, 0.5, journal, silent(), CLOCK)
    assert 0.0 < journal.rates[key][FRESH] < TOO_HIGH
    assert Journal(path, machine.fingerprint()).rates == journal.rates  # an interrupted run goes on with it
