"""Which shipped profile a calibration builds on, and how one is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from placer import machine, profile
from placer.calibration import make_reference
from placer.calibration.fitting.references import expectation, pace_of_kind, references
from placer.calibration.make_reference import LEAST_OF_LENGTH, MOST_LONGER
from placer.calibration.measuring.journal import Journal
from placer.calibration.measuring.observation import StepObservation
from placer.calibration.measuring.speed_probe import USUAL_READING
from placer.errors import CalibrationError
from placer.pricing.costs import foreign_family
from placer.pricing.operators import FAMILIES
from placer.profile.profile import Profile

MACHINE = {"cpu": "Some CPU", "cores": 2, "torch": "2.13.0+cpu"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shipped profiles: one of this machine's kind, one of another processor, both with the fits of a real one."""
    real = profile.load(profile.shipped()[0])
    monkeypatch.setattr(profile, "shipped_folder", lambda: tmp_path)
    for name, changes in (("alike", {"torch": "2.13.1"}), ("other", {"cpu": "Another CPU", "cores": 64})):
        profile.save(replace(real, fingerprint={**MACHINE, **changes}), tmp_path / f"{name}.json")
    return tmp_path


def expected(device: str = "cpu", threads: int = 2, **changes: object) -> tuple[str, bool] | None:
    found = expectation(references(), device, threads, {**MACHINE, **changes})
    return None if found is None else (found.name, found.same_class)


@pytest.mark.usefixtures("folder")
def test_the_most_similar_machine_is_taken() -> None:
    assert expected() == ("alike", True)
    assert expected(cpu="Another CPU", cores=48) == ("other", False)
    assert expected(cores=4) == ("alike", False)
    assert expected(torch="2.11.0") == ("alike", False)
    assert expected(cpu="Never Seen", cores=2) == ("alike", False)


@pytest.mark.usefixtures("folder")
def test_cpus_of_one_name_are_told_apart() -> None:
    real = references()[0]
    versions = {"AVX2": "family 25 model 1", "AVX512": "family 25 model 17"}
    for words, version in versions.items():
        facts = {**MACHINE, "cpu_instructions": words, "cpu_version": version}
        profile.save(replace(real, fingerprint=facts), profile.shipped_folder() / f"with-{words}.json")
    (profile.shipped_folder() / "alike.json").unlink()
    for words, version in versions.items():
        assert expected(cpu_instructions=words, cpu_version=version) == (f"with-{words}", True)
    assert expected(cpu_instructions="AVX512", cpu_version="family 26 model 2") == ("with-AVX512", False)


def at_beat(profile: Profile, reading: float) -> Profile:
    return replace(profile, fits=tuple(replace(fit, rates={**fit.rates, USUAL_READING: reading}) for fit in profile.fits))


@pytest.mark.usefixtures("folder")
def test_machines_of_one_kind_are_kin_at_any_pace_that_neighbours_leave() -> None:
    resting = 1e-4
    found = [at_beat(profile, resting) for profile in references()]
    for reading, same_class in ((0.0, True), (resting, True), (1.6 * resting, True), (2.1 * resting, False)):
        nearest = expectation(found, "cpu", 2, MACHINE, reading)
        assert nearest is not None
        assert nearest.same_class == same_class


def test_of_two_references_the_one_at_this_pace_is_taken(folder: Path) -> None:
    real = profile.load("alike")
    for name, reading in (("alike", 7e-5), ("alike-busy", 1.2e-4)):
        profile.save(at_beat(real, reading), folder / f"{name}.json")
    for reading, name in ((7.2e-5, "alike"), (1.2e-4, "alike-busy"), (1.6e-4, "alike-busy")):
        found = expectation(references(), "cpu", 2, MACHINE, reading)
        assert found is not None
        assert (found.name, found.same_class) == (name, True)


def test_of_profiles_that_are_strange_alike_the_newest_is_taken_whatever_its_pace(folder: Path) -> None:
    real = at_beat(profile.load("other"), 3e-4)
    dates = {"third": "2026-03-03T00:00:00+00:00", "fourth": "2026-04-04T00:00:00+00:00"}
    for name, created in dates.items():
        facts = {**MACHINE, "cpu": f"CPU of {name}"}
        profile.save(replace(real, fingerprint=facts, created=created), folder / f"{name}.json")
    (folder / "alike.json").unlink()
    found = expectation(references(), "cpu", 2, {**MACHINE, "cpu": "Never Seen"}, 1e-4)
    assert found is not None
    assert (found.name, found.same_class) == ("fourth", False)


@pytest.mark.usefixtures("folder")
def test_a_beat_of_the_pace_of_ones_kind_is_taken_for_that() -> None:
    known = [at_beat(profile, 1e-4) for profile in references()]
    for reading, pace in ((1.1e-4, 1e-4), (1e-4, 1e-4), (1.2e-4, None), (0.97e-4, None), (0.0, None)):
        assert pace_of_kind(known, "cpu", 2, MACHINE, reading) == pace
    assert pace_of_kind(known, "cpu", 2, {**MACHINE, "cpu": "Never Seen"}, 1e-4) is None
    assert pace_of_kind(known, "cuda", 2, MACHINE, 1e-4) is None
    assert pace_of_kind(references(), "cpu", 2, MACHINE, 1e-4) is None  # they did not feel their speed_probe


@pytest.mark.usefixtures("folder")
def test_the_fit_of_the_nearest_number_of_threads_is_taken() -> None:
    found = expectation(references(), "cpu", 1, MACHINE)
    assert found is not None
    assert found.fit.threads == 1


@pytest.mark.usefixtures("folder")
def test_a_device_nobody_measured_is_learnt_from_nothing() -> None:
    assert expected("cuda") is None


def test_a_profile_of_another_version_is_passed_over(folder: Path) -> None:
    found = profile.load("alike")
    first = found.fits[0]
    renamed = replace(first.families["matmul"], feature_names=("old",) * len(first.families["matmul"].feature_names))
    older = replace(first, families={**first.families, "matmul": renamed})
    profile.save(replace(found, fits=(older,)), folder / "alike.json")
    assert expected() == ("other", False)


@pytest.mark.parametrize("name", profile.shipped())
def test_what_is_shipped_speaks_of_today_features(name: str) -> None:
    found = profile.load(name)
    for fit in found.fits:
        assert foreign_family(fit) is None
        assert set(FAMILIES) >= set(fit.families)
        assert fit.reference == ""  # it was learnt from nothing
    assert found.complete
    assert not found.samples


def test_a_reference_is_measured_from_nothing_and_put_among_the_shipped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def taken(reading: float, count: int) -> list[StepObservation]:
    return [StepObservation("cpu", 1, "matmul", f"{n}", 1e-3, 0.0, {}, (), reading=reading) for n in range(count)]


def test_a_machine_at_rest_and_a_busy_one_are_two_references() -> None:
    rest, between, busy = taken(7e-5, 50), taken(9e-5, 10), taken(1.2e-4, 80)
    assert make_reference.by_pace([*busy, *between, *rest]) == (rest, busy)
    assert make_reference.by_pace(rest + between) == (rest, between)
    assert make_reference.by_pace(rest + taken(1.2e-4, 8)) == (rest, [])  # a moment is no pace
    contended = [step for n in range(6) for step in taken(7e-5 * 1.3**n, 4)]
    assert make_reference.by_pace(contended) == (contended, [])
    assert make_reference.by_pace(taken(0.0, 9)) == (taken(0.0, 9), [])  # the speed_probe was not felt


def test_what_long_steps_do_to_their_beats_is_no_pace_of_the_machine() -> None:
    def readings(of_short: float, of_long: float, count: int = LEAST_OF_LENGTH) -> set[float]:
        short = [replace(step, seconds=1e-4) for step in taken(of_short, count)]
        long = [replace(step, seconds=0.02) for step in taken(of_long, count)]
        return {round(step.reading, 9) for step in make_reference.leveled([*short, *long])}

    assert readings(6.2e-5, 6.8e-5) == {6.2e-5}
    assert readings(6.2e-5, 6e-5) == {6.2e-5, 6e-5}  # shorter ones are as they are
    assert readings(6.2e-5, 9e-5) == {6.2e-5, round(9e-5 / MOST_LONGER, 9)}  # a busy machine's
    assert readings(6.2e-5, 6.8e-5, LEAST_OF_LENGTH - 1) == {6.2e-5, 6.8e-5}
    assert readings(0.0, 0.0) == {0.0}  # the speed_probe was not felt


def test_sittings_of_two_paces_make_two_profiles(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    make_reference.sit(tmp_path, seconds=4.0)
    (path,) = tmp_path.glob("*.journal")
    session = Journal(path, machine.fingerprint(), existing=True)
    sorted_out = Journal(tmp_path / "two" / "paces.journal", machine.fingerprint())
    sorted_out.add_rates("cpu", 1, session.rates["cpu", 1], 1.0)
    for step in session.of("cpu", 1):
        for pace in (1.0, 2.0):
            sorted_out.add(replace(step, reading=1e-4 * pace, seconds=step.seconds * pace), 0.1)
    rest, busy = make_reference.together(tmp_path / "two")
    assert busy is not None
    assert rest.fit("cpu", 1).rates[USUAL_READING] == pytest.approx(1e-4, rel=0.02)
    assert busy.fit("cpu", 1).rates[USUAL_READING] == pytest.approx(2e-4, rel=0.02)
    assert not rest.samples
    assert not busy.samples


def test_sittings_of_another_machine_are_refused_and_stay(tmp_path: Path) -> None:
    Journal(tmp_path / "far.journal", {"cpu": "Another CPU"})
    before = (tmp_path / "far.journal").read_bytes()
    with pytest.raises(CalibrationError, match=r"far\.journal is no journal of this machine"):
        make_reference.together(tmp_path)
    assert (tmp_path / "far.journal").read_bytes() == before
    with pytest.raises(CalibrationError, match="no session in"):
        make_reference.together(tmp_path / "nowhere")
