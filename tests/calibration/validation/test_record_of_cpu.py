"""The committed records of machines without an accelerator: priced anew, their predictions are as good as ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from placer import load_profile
from placer.calibration.suite import entries
from placer.calibration.validation import record
from placer.calibration.validation.decision_scoring import thread_decisions
from placer.calibration.validation.run import replay
from placer.calibration.validation.scoring import score

RECORDS = Path(__file__).parents[3] / "calibration" / "records"


#: Records by the profile that prices them: calibrated on the day, or what comes with placer of that kind of machine.
PRICED_BY = {
    "cpu-2-core": "profile.json",
    "cpu-avx512-2-core": "profile.json",
    "cpu-avx512-2-core-calm": "profile.json",
    "cpu-intel-avx512-2-core": "intel-xeon-avx512-2-core",
}


#: Of the same class: they tell nothing new but to ``make soak``.
REPEATED = ("cpu-avx512-2-core", "cpu-avx512-2-core-calm")
NAMES = [pytest.param(name, marks=[pytest.mark.soak] if name in REPEATED else []) for name in PRICED_BY]


@pytest.mark.parametrize("name", NAMES)
def test_the_figures_reached_are_held(name: str) -> None:
    priced_by = PRICED_BY[name]
    profile = load_profile(RECORDS / name / priced_by if priced_by.endswith(".json") else priced_by)
    found = record.load(RECORDS / name / "measurements.json")
    names = {entry.name for entry in entries("quick")}
    kept = replace(found, cells=tuple(cell for cell in found.cells if cell.network in names))
    reached = score(replay(kept, profile).cells)
    assert reached is not None
    assert reached.cells >= 40
    assert reached.median_error < 0.17
    assert reached.p90_error < 0.45
    assert reached.beyond_2x < 0.05
    assert reached.inside > 0.85


def test_every_reference_system_is_priced_within_fifteen_percent() -> None:
    folder = RECORDS / "cpu-intel-avx512-2-core"
    profile = load_profile(folder / "reference_profile.json")
    cells = replay(record.load(folder / "reference.json"), profile).cells
    assert {cell.network for cell in cells} == {entry.name for entry in entries("reference")}
    ratios = [cell.predicted / cell.measured for cell in cells if cell.predicted and cell.measured]
    assert len(ratios) == len(cells)
    assert 0.85 < min(ratios) < max(ratios) < 1.15
    reached = score(cells)
    assert reached is not None
    assert reached.median_error <= 0.08


def test_the_decision_on_threads_is_held() -> None:
    folder = RECORDS / "cpu-avx512-2-core"
    cells = replay(record.load(folder / "threads.json"), load_profile(folder / "profile.json")).cells
    rows = {row.rule: row for row in thread_decisions(cells)}
    reached, all_threads = rows["placer"], rows["always all threads"]
    assert reached.scenarios == 46
    assert reached.wrong <= 3
    assert reached.mean_regret < 0.03 < all_threads.mean_regret
