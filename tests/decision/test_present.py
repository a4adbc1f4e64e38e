"""Which profile this machine is priced with: its calibration while it holds, else an estimate."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
from torch import nn

import placer
from placer import decision as deciding
from placer import machine, profile
from placer.profile import Profile


@pytest.fixture(autouse=True)
def _speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a CPU: each test begins in an empty folder, and would measure for half a second."""
    monkeypatch.setattr(machine, "measure_speeds", lambda: machine.MeasuredSpeeds(1e-4, 2e11, 3e10))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def test_a_calibration_that_holds_is_used(calibrated: Profile) -> None:
    assert deciding.current_profile().created == calibrated.created
    assert not deciding.current_profile().estimated


def test_without_one_it_is_the_same_estimate_again() -> None:
    found = deciding.current_profile()
    assert found.estimated
    assert deciding.current_profile() is found


def test_a_calibration_takes_the_place_of_the_estimate(handmade_profile: Profile) -> None:
    deciding.current_profile()
    profile.save(handmade_profile)
    assert not deciding.current_profile().estimated


@pytest.mark.parametrize(("change", "told"), [({"torch": "1.0"}, "torch: 1.0 -> "), ({"cpu": "Z80"}, "CPU: Z80 -> ")])
def test_one_that_does_not_hold_any_more_is_replaced_and_named(
    change: dict[str, str], told: str, handmade_profile: Profile
) -> None:
    profile.save(replace(handmade_profile, fingerprint={**handmade_profile.fingerprint, **change}))
    found = deciding.current_profile()
    assert found.estimated
    assert told in found.warnings[0]
    assert "run: placer calibrate" in found.warnings[0]


def test_strict_wants_a_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    model = net()
    with pytest.warns(placer.PlacerWarning):
        placer.choose(model, (4, 8))
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(placer.ProfileMissing):
        deciding.current_profile()
    with pytest.raises(placer.ProfileMissing):
        placer.choose(model, (4, 8))
    with pytest.raises(placer.ProfileMissing):
        placer.explain(model, (4, 8))


@pytest.mark.parametrize(("quiet", "notices"), [("0", 1), ("", 1), ("1", 0)])
def test_the_notice_comes_once_and_can_be_silenced(
    quiet: str, notices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_QUIET", quiet)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        placements = [placer.choose(net(), (rows, 8)) for rows in (4, 400, 4)]
        placer.explain(net(), (4, 8))
    assert [w.category for w in seen] == [placer.PlacerWarning] * notices
    assert {placement.provenance for placement in placements} == {"published"}
