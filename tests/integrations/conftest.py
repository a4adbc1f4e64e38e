"""What the integrations' tests share: a calibrated machine, no plans from other tests, no leftovers in the checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from placer import api
from placer.profile import Profile


@pytest.fixture(autouse=True)
def _calibrated(calibrated: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)  # frameworks write logs and checkpoints where they stand
    api.plans.clear()
    yield
    api.plans.clear()
