"""What hangs is left, a device that no longer works is known, and one calibration runs at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from placer import machine, profile
from placer.calibration.measuring.faults import HungError, locked, time_limit
from placer.calibration.measuring.journal import journal_file
from placer.calibration.runner import calibrate
from placer.errors import CalibrationError

posix = pytest.mark.skipif(os.name != "posix", reason="alarms and process groups are POSIX's")


@posix
def test_what_hangs_in_this_process_is_left_however_often_it_swallows_the_error() -> None:
    def stubborn() -> None:
        with contextlib.suppress(HungError):
            time.sleep(1000)
        time.sleep(1000)

    with pytest.raises(HungError, match=r"the loop did not come back within 0\.1 s"), time_limit(0.1, "the loop"):
        stubborn()


@posix
def test_an_alarm_of_somebody_else_is_put_back() -> None:
    rang: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    theirs = signal.setitimer(signal.ITIMER_REAL, 60.0)
    try:
        with time_limit(100.0, "quick"):
            pass
        assert 0.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60.0
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with time_limit(100.0, "as long as the alarm"):
            time.sleep(0.1)  # theirs is due earlier: it rings, and the limit stays away
        assert rang == [1]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *theirs)


HOLDS = """
import sys, time
from pathlib import Path
from placer.calibration.measuring.faults import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
"""


def test_the_second_is_told_what_to_do_however_it_spells_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, link = tmp_path / "deeper" / "p.json", tmp_path / "link.json"
    link.symlink_to(target)
    monkeypatch.chdir(tmp_path)
    for path in (target, "deeper/p.json", tmp_path / "none" / ".." / "deeper" / "p.json", link):
        with locked(target), pytest.raises(CalibrationError, match=r"another calibration is writing .*--output"):
            calibrate(path=path, progress=False)
    with locked(target), locked(tmp_path / "other.json"):
        pass
    assert list(profile.working_file(target, ".lock").parent.iterdir()) == []


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    target = tmp_path / "p.json"
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(target)], stdout=subprocess.PIPE, text=True)
    with holder.stdout:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CalibrationError, match="another calibration"), locked(target):
            pass
        holder.send_signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
        holder.wait(60)
    with locked(target):
        pass


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
@pytest.mark.parametrize("suffix", [".lock", ".journal"])
def test_a_symbolic_link_is_refused(suffix: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    target = tmp_path / "p.json"
    is_lock = suffix == ".lock"
    working = profile.working_file(target, suffix) if is_lock else journal_file(target, machine.fingerprint())
    working.parent.mkdir()
    working.symlink_to(victim)
    with pytest.raises(CalibrationError, match="symbolic link, which is refused"):
        calibrate(path=target, progress=False)
    assert victim.read_text() == "precious"


def test_a_place_that_cannot_be_written_is_known_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CalibrationError, match=r"cannot write .*--output FILE"):
        calibrate(path=tmp_path / "file" / "p.json", progress=False)
