"""What hangs is ended, with everything it started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from ended import ended

from placer.calibration.lab.commands import run_limited
from placer.calibration.measuring.faults import HungError
from placer.errors import CalibrationError

#: A process that starts another one and waits for it, for ever.
FAMILY = 'sleep 1000 & echo $! > "$0"; wait'
#: A process that is done while the one it started lives on, with the same standard output.
ORPHAN = FAMILY.replace("wait", "echo done")

posix = pytest.mark.skipif(os.name != "posix", reason="process groups are POSIX's")


def test_a_command_gives_its_output_or_its_last_line() -> None:
    assert run_limited([sys.executable, "-c", "print('out')"], seconds=60.0).strip() == "out"
    with pytest.raises(CalibrationError, match="ended with code 1: last"):
        run_limited([sys.executable, "-c", "import sys; sys.exit('first\\nlast')"], seconds=60.0)


@posix
def test_a_hung_command_and_its_child_are_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(HungError, match=r"within 0\.5 s"):
        run_limited(["sh", "-c", FAMILY, str(pid)], seconds=0.5)
    assert ended(int(pid.read_text()))


@posix
def test_a_child_that_outlives_its_parent_holds_nobody_up(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    assert run_limited(["sh", "-c", ORPHAN, str(pid)], seconds=60.0).strip() == "done"
    assert ended(int(pid.read_text()))
