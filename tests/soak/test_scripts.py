"""Very many random scripts, in a process that has the simulated accelerator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated import backend
from simulated.entry_point import passed_beside

SCRIPTS = 2000
Note = Callable[[str, str], None]


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not backend.supported(), reason="this torch takes no backend written in Python")
def test_two_thousand_random_scripts(share: float, note: Note, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    count = max(int(SCRIPTS * share), 20)
    said = passed_beside("on_simulated/test_scripts.py", tmp_path, pytestconfig.inipath, PLACER_SCRIPTS=f"0:{count}")
    (passed,) = re.findall(r"(\d+) passed", said)
    (skipped,) = re.findall(r"(\d+) skipped", said) or ["0"]
    kept = f"{int(passed):,} scripts unchanged, and run where they were put"
    note("scripts", f"{kept}; {skipped} of those drawn fail by themselves")
