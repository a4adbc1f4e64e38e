"""Runs the tests of ``on_simulated`` in a process of their own: a device, once registered, is there for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from simulated import backend
from simulated.entry_point import environment

TESTS = Path(__file__).parent


@pytest.mark.timeout(900)
@pytest.mark.skipif(not backend.supported(), reason="this torch takes no backend written in Python")
def test_everything_that_serves_accelerators_serves_a_simulated_one(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    command = [
        sys.executable, "-m", "pytest", "-c", str(pytestconfig.inipath), "--rootdir", str(TESTS.parent), "-q",
        "-p", "no:cacheprovider", str(TESTS / "on_simulated"),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=890, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
