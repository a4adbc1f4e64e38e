"""A record beside the predictions of another profile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placer.calibration.validation import run
from placer.calibration.validation.record import Cell, Report
from placer.calibration.validation.run import replay

from .made_up import measured, profile, tiny

pytestmark = pytest.mark.usefixtures("one_thread")


def test_replay_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "entries", lambda _: [tiny()])
    report = measured(tiny())
    gone = replace(report.cells[0], network="gone")
    replayed = replay(replace(report, cells=(*report.cells, gone)), profile(rate=1e6))
    assert [c.measured for c in replayed.cells[:4]] == [c.measured for c in report.cells]
    assert all((b.predicted or 0) > (a.predicted or 0) for a, b in zip(report.cells, replayed.cells, strict=False))
    assert replayed.cells[4].prediction_error == "no longer in the suite"
    assert replayed.cells[4].predicted is None


def test_replay_on_a_device_the_profile_does_not_know() -> None:
    cell = Cell("mlp_tiny_sgd", "mlp", 1, "infer", "cuda", 1, measured=1.0, predicted=1.0, low=0.5, high=2.0)
    report = Report("2026-01-01", {}, "other", (cell,))
    (replayed,) = replay(report, profile()).cells
    assert replayed.predicted is None
    assert replayed.low is None
    assert "cuda" in (replayed.prediction_error or "")
    assert replayed.measured == 1.0
