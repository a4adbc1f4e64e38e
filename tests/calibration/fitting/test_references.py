"""Which shipped profile a calibration builds on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from placer import profile
from placer.calibration.fitting.transfer import expectation, pace_of_class, shipped_references
from placer.calibration.measuring.speed_probe import USUAL_READING
from placer.pricing.describe import foreign_family
from placer.pricing.families import FAMILIES
from placer.profile import store
from placer.profile.profile import Profile

MACHINE = {"cpu": "Some CPU", "cores": 2, "torch": "2.13.0+cpu"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shipped profiles: one of this machine's class, one of another processor, both with the fits of a real one."""
    real = profile.load(profile.shipped()[0])
    monkeypatch.setattr(store, "shipped_folder", lambda: tmp_path)
    for name, changes in (("alike", {"torch": "2.13.1"}), ("other", {"cpu": "Another CPU", "cores": 64})):
        profile.save(replace(real, fingerprint={**MACHINE, **changes}), tmp_path / f"{name}.json")
    return tmp_path


def expected(device: str = "cpu", threads: int = 2, **changes: object) -> tuple[str, bool] | None:
    found = expectation(shipped_references(), device, threads, {**MACHINE, **changes})
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
    real = shipped_references()[0]
    versions = {"AVX2": "family 25 model 1", "AVX512": "family 25 model 17"}
    for words, version in versions.items():
        facts = {**MACHINE, "cpu_instructions": words, "cpu_version": version}
        profile.save(replace(real, fingerprint=facts), store.shipped_folder() / f"with-{words}.json")
    (store.shipped_folder() / "alike.json").unlink()
    for words, version in versions.items():
        assert expected(cpu_instructions=words, cpu_version=version) == (f"with-{words}", True)
    assert expected(cpu_instructions="AVX512", cpu_version="family 26 model 2") == ("with-AVX512", False)


def at_reading(profile: Profile, reading: float) -> Profile:
    """The profile as if its machine's usual reading had been this one."""
    fits = (replace(fit, rates={**fit.rates, USUAL_READING: reading}) for fit in profile.fits)
    return replace(profile, fits=tuple(fits))


@pytest.mark.usefixtures("folder")
def test_machines_alike_are_of_one_class_at_any_pace_that_contention_leaves() -> None:
    quiet = 1e-4
    found = [at_reading(profile, quiet) for profile in shipped_references()]
    for reading, same_class in ((0.0, True), (quiet, True), (1.6 * quiet, True), (2.1 * quiet, False)):
        nearest = expectation(found, "cpu", 2, MACHINE, reading)
        assert nearest is not None
        assert nearest.same_class == same_class


def test_of_two_references_the_one_at_this_pace_is_taken(folder: Path) -> None:
    real = profile.load("alike")
    for name, reading in (("alike", 7e-5), ("alike-busy", 1.2e-4)):
        profile.save(at_reading(real, reading), folder / f"{name}.json")
    for reading, name in ((7.2e-5, "alike"), (1.2e-4, "alike-busy"), (1.6e-4, "alike-busy")):
        found = expectation(shipped_references(), "cpu", 2, MACHINE, reading)
        assert found is not None
        assert (found.name, found.same_class) == (name, True)


def test_of_profiles_equally_dissimilar_the_newest_is_taken_whatever_its_pace(folder: Path) -> None:
    real = at_reading(profile.load("other"), 3e-4)
    dates = {"third": "2026-03-03T00:00:00+00:00", "fourth": "2026-04-04T00:00:00+00:00"}
    for name, created in dates.items():
        facts = {**MACHINE, "cpu": f"CPU of {name}"}
        profile.save(replace(real, fingerprint=facts, created=created), folder / f"{name}.json")
    (folder / "alike.json").unlink()
    found = expectation(shipped_references(), "cpu", 2, {**MACHINE, "cpu": "Never Seen"}, 1e-4)
    assert found is not None
    assert (found.name, found.same_class) == ("fourth", False)


@pytest.mark.usefixtures("folder")
def test_a_reading_of_the_pace_of_ones_class_is_taken_for_that() -> None:
    known = [at_reading(profile, 1e-4) for profile in shipped_references()]
    for reading, pace in ((1.1e-4, 1e-4), (1e-4, 1e-4), (1.2e-4, None), (0.97e-4, None), (0.0, None)):
        assert pace_of_class(known, "cpu", 2, MACHINE, reading) == pace
    assert pace_of_class(known, "cpu", 2, {**MACHINE, "cpu": "Never Seen"}, 1e-4) is None
    assert pace_of_class(known, "cuda", 2, MACHINE, 1e-4) is None
    assert pace_of_class(shipped_references(), "cpu", 2, MACHINE, 1e-4) is None  # they know no usual reading


@pytest.mark.usefixtures("folder")
def test_the_fit_of_the_nearest_number_of_threads_is_taken() -> None:
    found = expectation(shipped_references(), "cpu", 1, MACHINE)
    assert found is not None
    assert found.fit.threads == 1


@pytest.mark.usefixtures("folder")
def test_a_device_nobody_measured_is_learnt_from_no_other() -> None:
    assert expected("cuda") is None


def test_a_profile_of_another_version_is_passed_over(folder: Path) -> None:
    found = profile.load("alike")
    first = found.fits[0]
    renamed = replace(first.families["matmul"], feature_names=("old",) * len(first.families["matmul"].feature_names))
    older = replace(first, families={**first.families, "matmul": renamed})
    profile.save(replace(found, fits=(older,)), folder / "alike.json")
    assert expected() == ("other", False)


@pytest.mark.parametrize("name", profile.shipped())
def test_what_is_shipped_has_todays_features(name: str) -> None:
    found = profile.load(name)
    for fit in found.fits:
        assert foreign_family(fit) is None
        assert set(FAMILIES) >= set(fit.families)
        assert fit.reference == ""  # it was learnt from no other
    assert found.complete
    assert not found.samples
