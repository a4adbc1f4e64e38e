"""What recording costs is found from chains of several lengths, and no single moment decides it."""

from __future__ import annotations

import itertools

import pytest

from placer.calibration.measuring import recording_cost
from placer.calibration.measuring.step_timing import RecorderCost


def test_what_recording_costs_is_found_from_chains_of_several_lengths() -> None:
    found = recording_cost.recorder_cost("cpu")
    assert found.per_step >= 0.0
    assert 0.0 < found.per_event <= recording_cost.MOST_PER_EVENT


def test_one_disturbed_moment_does_not_decide_what_recording_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = itertools.cycle((20.0, 80.0, 240.0))
    disturbed = iter([0.0, 3e-3, 0.0, 0.0, 0.0, -1e-3, *[0.0] * 100])
    monkeypatch.setattr(recording_cost, "record", lambda *_, **__: [])
    monkeypatch.setattr(
        recording_cost, "_added", lambda *_: (n := next(lengths), 2e-5 + 7e-7 * n + next(disturbed))
    )
    assert recording_cost.recorder_cost("cpu") == RecorderCost(pytest.approx(2e-5), pytest.approx(7e-7))
