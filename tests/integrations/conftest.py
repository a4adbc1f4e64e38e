"""What the integrations' tests share: a calibrated machine, no plans from other tests, no leftovers in the checkout."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from placer.profile.profile import Profile


@pytest.fixture(autouse=True)
def _calibrated(calibrated: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # frameworks write logs and checkpoints where they stand


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The INFO records of the logger ``placer`` since the last time it was called."""
    caplog.set_level(logging.INFO, logger="placer")

    def since() -> list[str]:
        said = [record.getMessage() for record in caplog.records if record.name == "placer"]
        caplog.clear()
        return said

    return since
