"""What the integrations' tests share: a calibrated machine, no plans from other tests, no leftovers in the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer.profile.profile import Profile


@pytest.fixture(autouse=True)
def _calibrated(calibrated: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # frameworks write logs and checkpoints where they stand
