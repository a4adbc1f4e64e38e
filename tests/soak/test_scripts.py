"""Very many random scripts, in a process that has the simulated accelerator."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated import backend
from simulated.entry_point import environment

TESTS = Path(__file__).parents[1]
SCRIPTS = 2000
Note = Callable[[str, str], None]


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not backend.supported(), reason="this torch takes no backend written in Python")
def test_two_thousand_random_scripts(share: float, note: Note, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    count = max(int(SCRIPTS * share), 20)
    command = [
        sys.executable, "-m", "pytest", "-c", str(pytestconfig.inipath), "--rootdir", str(TESTS.parent), "-q",
        "-p", "no:cacheprovider", str(TESTS / "on_simulated" / "test_scripts.py"),
    ]  # fmt: skip
    variables = {**environment(tmp_path), "PLACER_SCRIPTS": f"0:{count}"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    (skipped,) = re.findall(r"(\d+) skipped", done.stdout) or ["0"]
    kept = f"{int(passed):,} scripts unchanged, and run where they were put"
    note("scripts", f"{kept}; {skipped} of those drawn fail by themselves")
