"""Fits of records' journals that tests keep: a test's own data folder is empty, and a fit takes ten seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from placer.calibration.validation import recorded


@contextmanager
def fits_are_kept(config: pytest.Config) -> Iterator[None]:
    """Within it, fits lie in pytest's cache until the code changes."""
    assert config.cache is not None
    folder = Path(config.cache.mkdir("placer-fits"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "fits_folder", lambda: folder)
        yield
