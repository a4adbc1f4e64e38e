"""Validations of these tests run on one thread; what they fit to a record's journal is kept until the code changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from placer.calibration.validation import recorded


@pytest.fixture(scope="session", autouse=True)
def _fits_are_kept(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fits lie in pytest's cache: a test's own data folder is empty, and a fit takes ten seconds."""
    assert pytestconfig.cache is not None
    folder = Path(pytestconfig.cache.mkdir("placer-fits"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "fits_folder", lambda: folder)
        yield


@pytest.fixture
def one_thread() -> None:
    """Put back by the fixtures of all tests."""
    torch.set_num_threads(1)
