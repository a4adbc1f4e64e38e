"""Reference profiles are made of measurement sessions: one of the quiet machine, one of the contended machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from placer import machine, profile
from placer.calibration import make_reference
from placer.calibration.measuring.journal import Journal, StepObservation
from placer.calibration.measuring.speed_probe import USUAL_READING
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
    assert written.count(str(folder / "made-here.json")) == 2
    assert set(written) <= {str(folder / f"{name}.json") for name in ("made-here", "made-here-busy")}
    assert made.devices() == ("cpu",)
    assert made.samples == ()
    assert all(fit.reference == "" and fit.families for fit in made.fits)
    assert "made-here" in profile.shipped()


def test_sessions_are_found_in_the_data_folder(placer_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def none_there(folder: Path) -> None:
        asked.append(folder)
        raise CalibrationError("no session")

    monkeypatch.setattr(make_reference, "profiles_of", none_there)
    with pytest.raises(CalibrationError):
        make_reference.main(["made-here", "--budget", "0"])
    assert asked == [placer_home / "sessions" / "made-here"]


def taken(reading: float, count: int) -> list[StepObservation]:
    return [StepObservation("cpu", 1, "matmul", f"{n}", 1e-3, 0.0, {}, (), reading=reading) for n in range(count)]


def test_the_quiet_and_the_contended_machine_are_two_references() -> None:
    quiet, between, contended = taken(7e-5, 50), taken(9e-5, 10), taken(1.2e-4, 80)
    assert make_reference.by_speed([*contended, *between, *quiet]) == (quiet, contended)
    assert make_reference.by_speed(quiet + between) == (quiet, between)
    assert make_reference.by_speed(quiet + taken(1.2e-4, 8)) == (quiet, [])  # a moment is too short
    never_steady = [step for n in range(6) for step in taken(7e-5 * 1.3**n, 4)]
    assert make_reference.by_speed(never_steady) == (never_steady, [])
    assert make_reference.by_speed(taken(0.0, 9)) == (taken(0.0, 9), [])  # without a probe


@pytest.mark.soak
def test_sessions_at_two_speeds_make_two_profiles(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    make_reference.measure_session(tmp_path, seconds=4.0)
    (path,) = tmp_path.glob("*.journal")
    session = Journal(path, machine.fingerprint(), existing=True)
    sorted_out = Journal(tmp_path / "two" / "speeds.journal", machine.fingerprint())
    sorted_out.add_rates("cpu", 1, session.rates["cpu", 1], 1.0)
    for step in session.of("cpu", 1):
        for factor in (1.0, 2.0):
            sorted_out.add(replace(step, reading=1e-4 * factor, seconds=step.seconds * factor), 0.1)
    quiet, contended = make_reference.profiles_of(tmp_path / "two")
    assert contended is not None
    assert quiet.fit("cpu", 1).rates[USUAL_READING] == pytest.approx(1e-4, rel=0.02)
    assert contended.fit("cpu", 1).rates[USUAL_READING] == pytest.approx(2e-4, rel=0.02)
    assert not quiet.samples
    assert not contended.samples


def test_sessions_of_another_machine_are_refused_and_stay(tmp_path: Path) -> None:
    Journal(tmp_path / "far.journal", {"cpu": "Another CPU"})
    before = (tmp_path / "far.journal").read_bytes()
    with pytest.raises(CalibrationError, match=r"far\.journal is no journal of this machine"):
        make_reference.measure_session(tmp_path, seconds=1500.0)  # before anything is measured
    with pytest.raises(CalibrationError, match=r"far\.journal is no journal of this machine"):
        make_reference.profiles_of(tmp_path)
    assert (tmp_path / "far.journal").read_bytes() == before
    with pytest.raises(CalibrationError, match="no session in"):
        make_reference.profiles_of(tmp_path / "nowhere")
