"""A reference profile is made of measurement sessions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from placer import machine, profile
from placer.calibration.lab import make_reference
from placer.calibration.measuring.journal import Journal
from placer.errors import CalibrationError
from placer.profile import store
from placer.profile.profile import Profile


@pytest.mark.soak
def test_a_reference_is_measured_from_nothing_and_put_among_the_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path
    for module in (profile, store):
        monkeypatch.setattr(module, "shipped_folder", lambda: folder)
    torch.set_num_threads(1)
    sessions = folder / "sessions"
    for _ in range(2):
        assert make_reference.main(["made-here", "--budget", "4", "--sessions", str(sessions)]) == 0
    made: Profile = profile.load("made-here")
    first, second = (
        [step.name for step in Journal(path, machine.fingerprint(), existing=True).of("cpu", 1)]
        for path in sorted(sessions.glob("*.journal"))
    )
    assert not set(first[:2]) & set(second[:2])  # another session draws other networks
    assert made.seconds > 7.0  # both
    written = capsys.readouterr().out.splitlines()
    assert written == [str(folder / "made-here.json")] * 2
    assert made.devices() == ("cpu",)
    assert made.samples == ()
    assert all(fit.reference == "" and fit.families for fit in made.fits)
    assert "made-here" in profile.shipped()


def test_sessions_of_another_machine_are_refused_and_stay(tmp_path: Path) -> None:
    Journal(tmp_path / "far.journal", {"cpu": "Another CPU"})
    before = (tmp_path / "far.journal").read_bytes()
    with pytest.raises(CalibrationError, match=r"far\.journal is no journal of this machine"):
        make_reference.measure_session(tmp_path, seconds=1500.0)  # before anything is measured
    with pytest.raises(CalibrationError, match=r"far\.journal is no journal of this machine"):
        make_reference.profile_of(tmp_path)
    assert (tmp_path / "far.journal").read_bytes() == before
    with pytest.raises(CalibrationError, match="no session in"):
        make_reference.profile_of(tmp_path / "nowhere")
