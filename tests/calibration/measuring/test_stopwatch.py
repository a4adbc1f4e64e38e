"""Whole steps, recorded and not, in turns."""

from __future__ import annotations

import itertools

import pytest

from placer.calibration.measuring import recording as stopwatches
from placer.calibration.measuring.recording import Recorded, Stopwatch


def test_the_first_recorded_step_counts_only_among_few(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [(Recorded(float(i), []), 1e-4) for i in range(6)]
    monkeypatch.setattr(stopwatches, "record", lambda _, rounds, **__: runs[:rounds])
    stopwatch = Stopwatch(lambda: None, None, itertools.count().__next__, None)
    assert [run.seconds for run, _ in stopwatch.in_turns(1, 6, 1)[1]] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [run.seconds for run, _ in stopwatch.in_turns(1, 4, 1)[1]] == [0.0, 1.0, 2.0, 3.0]
