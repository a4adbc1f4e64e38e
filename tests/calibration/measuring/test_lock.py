"""One calibration at a time: a lock that ends with its holder, and is no symbolic link."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from placer import profile
from placer.calibration.measuring.faults import locked
from placer.calibration.runner import calibrate
from placer.errors import CalibrationError

HOLDS = """
import sys, time
from pathlib import Path
from placer.calibration.measuring.faults import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(1000)
"""


def test_the_second_is_told_what_to_do(tmp_path: Path) -> None:
    target = tmp_path / "deeper" / "p.json"
    with locked(target), pytest.raises(CalibrationError, match=r"another calibration is writing .*--output"):
        calibrate(path=target, progress=False)
    with locked(target), locked(tmp_path / "other.json"):
        pass
    assert list(profile.working_file(target, ".lock").parent.iterdir()) == []


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    target = tmp_path / "p.json"
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(target)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
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
    working = profile.working_file(target, suffix)
    working.parent.mkdir()
    working.symlink_to(victim)
    with pytest.raises(CalibrationError, match="symbolic link, which is refused"):
        calibrate(path=target, progress=False)
    assert victim.read_text() == "precious"


def test_every_spelling_of_a_path_is_the_same_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "p.json"
    (tmp_path / "link.json").symlink_to(target)
    monkeypatch.chdir(tmp_path)
    for path in ("p.json", tmp_path / "none" / ".." / "p.json", tmp_path / "link.json"):
        with locked(target), pytest.raises(CalibrationError, match="another calibration"):
            calibrate(path=path, progress=False)


def test_a_place_that_cannot_be_written_is_known_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CalibrationError, match=r"cannot write .*--output FILE"):
        calibrate(path=tmp_path / "file" / "p.json", progress=False)
