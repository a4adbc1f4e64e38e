"""Runs the tests of ``on_simulated`` in a process of their own: a device, once registered, is there for good."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated import backend
from simulated.entry_point import passed_beside


@pytest.mark.timeout(900)
@pytest.mark.skipif(not backend.supported(), reason="this torch takes no backend written in Python")
def test_everything_that_serves_accelerators_serves_a_simulated_one(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    passed_beside("on_simulated", tmp_path, pytestconfig.inipath)
