"""No op of those that torch tests itself with is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = 40


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, PARTS))])
def test_no_op_of_torchs_own_database_is_refused(part: int) -> None:
    script = Path(__file__).parents[1] / "op_database.py"
    command = [sys.executable, str(script), "trace", str(part), str(PARTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=250)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["refused"] == {}
    assert found["traced"] > 0.9 * found["ops"]
