"""Which machine a calibration builds on, and how the two differ over all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from placer import profile
from placer.calibration.fitting import expectations, shipped_references
from placer.pricing import FAMILIES, is_current
from placer.profile import Profile, store

MACHINE = {"cpu": "Some CPU", "cores": 2, "torch": "2.13.0+cpu"}


@pytest.fixture(scope="module")
def real() -> Profile:
    return profile.load(profile.shipped()[0])


@pytest.fixture
def folder(tmp_path: Path, real: Profile, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Shipped profiles: one of this machine's class, one of another processor."""
    monkeypatch.setattr(store, "shipped_folder", lambda: tmp_path)
    for name, changes in (("alike", {"torch": "2.13.1"}), ("other", {"cpu": "Another CPU", "cores": 64})):
        profile.save(replace(real, fingerprint={**MACHINE, **changes}), tmp_path / f"{name}.json")
    return tmp_path


def expected(name: str = "cpu", **changes: object) -> tuple[str, bool] | None:
    found = expectations(shipped_references(), name, 2, {**MACHINE, **changes})
    return (found[0].name, found[0].same_class) if found else None


def test_the_most_similar_machine_is_taken(folder: Path, real: Profile) -> None:
    assert expected() == ("alike", True)
    assert expected(cpu="Another CPU", cores=48) == ("other", False)
    for changes in ({"cores": 4}, {"torch": "2.11.0"}, {"cpu": "Never Seen", "cores": 2}):
        assert expected(**changes) == ("alike", False)
    assert expected("cuda") is None
    (found,) = expectations(shipped_references(), "cpu", 1, MACHINE)
    assert found.fit.threads == 1
    # CPUs of one name are told apart.
    (folder / "alike.json").unlink()
    versions = {"AVX2": "family 25 model 1", "AVX512": "family 25 model 17"}
    for words, version in versions.items():
        facts = {**MACHINE, "cpu_instructions": words, "cpu_version": version}
        profile.save(replace(real, fingerprint=facts), folder / f"with-{words}.json")
    for words, version in versions.items():
        assert expected(cpu_instructions=words, cpu_version=version) == (f"with-{words}", True)
    assert expected(cpu_instructions="AVX512", cpu_version="family 26 model 2") == ("with-AVX512", False)


@pytest.mark.parametrize("name", profile.shipped())
def test_what_is_shipped_is_of_todays_networks_and_was_learnt_from_no_other(name: str) -> None:
    found = profile.load(name)
    assert {fit.threads for fit in found.fits} >= {1, 2}
    for fit in found.fits:
        assert is_current(fit)
        assert set(FAMILIES) >= set(fit.families) >= {"matmul", "convolution", "elementwise", "optimizer"}
        assert fit.reference == ""
    assert found.complete
