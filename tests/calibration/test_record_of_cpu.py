"""The committed record of a machine without an accelerator: priced anew, its predictions are as good as ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from placer import load_profile
from placer.calibration import record
from placer.calibration.scoring import score
from placer.calibration.suite import entries
from placer.calibration.validation import replay

RECORD = Path(__file__).parents[2] / "calibration" / "records" / "cpu-2-core"


def test_the_figures_reached_are_held() -> None:
    found = record.load(RECORD / "measurements.json")
    names = {entry.name for entry in entries("quick")}
    kept = replace(found, cells=tuple(cell for cell in found.cells if cell.network in names))
    reached = score(replay(kept, load_profile(RECORD / "profile.json")).cells)
    assert reached is not None
    assert reached.cells >= 40
    # Where this process's heap stands moves a few of them.
    assert reached.median_error < 0.17
    assert reached.p90_error < 0.45
    assert reached.beyond_2x < 0.05
    assert reached.inside > 0.85
