"""What tests share that measure on the CPU for real."""

from __future__ import annotations

import pytest

from placer.calibration.measuring import recording


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """What recording costs is found in one round: four take seconds, and the test is not about it."""
    monkeypatch.setattr(recording, "COST_ROUNDS", 1)
