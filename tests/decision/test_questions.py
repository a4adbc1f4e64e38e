"""The profiles that ``explain`` is asked to compare."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import nn

from placer.decision import Objective
from placer.decision.questions import profile_named, question
from placer.errors import ProfileMissing
from placer.profile import Profile
from placer.workload import Workload, make_workload


@pytest.fixture
def other(handmade_profile: Profile) -> Profile:
    """Of a machine with another CPU."""
    return replace(handmade_profile, name="other", fingerprint={**handmade_profile.fingerprint, "cpu": "Z80"})


@pytest.fixture
def workload() -> Workload:
    return make_workload(nn.Linear(4, 2), (3, 4))


def test_this_machines_profile_is_the_usual_one(calibrated: Profile) -> None:
    found = question(None, "tune", None, None, Objective("energy"))
    assert (found.here, found.devices, found.threads, found.what_if, found.beside) == (True, None, "tune", None, ())
    assert (found.profile.created, found.objective.name) == (calibrated.created, "energy")
    assert question(["cpu"], "keep", None, None).devices == ("cpu",)
    with pytest.raises(ValueError, match="warp"):
        question(["warp"], "keep", None, None)


def test_several_profiles_stand_beside_the_first(calibrated: Profile, other: Profile) -> None:
    found = question(["warp"], "keep", [other, calibrated], None)  # another machine may have it
    assert (found.here, found.profile, found.beside) == (False, other, (calibrated,))


def test_a_gpu_of_the_catalog_is_driven_by_the_cpu_that_is_compared(calibrated: Profile, other: Profile) -> None:
    assert question(None, "keep", other, "T4").what_if.fit("cuda").reference == "Z80"
    (beside,) = question(None, "keep", [other, "T4"], None).beside
    assert beside.fit("cuda").reference == "Z80"
    alone = replace(other, fits=other.fits[1:])
    assert question(None, "keep", alone, "T4").what_if.fit("cuda").reference == calibrated.fingerprint["cpu"]
    assert profile_named("T4").fit("cuda").reference == calibrated.fingerprint["cpu"]


def test_without_a_calibration_a_gpu_has_the_usual_host() -> None:
    assert profile_named("T4").fit("cuda").reference == ""
    with pytest.raises(ProfileMissing):
        profile_named("no such thing.json")


def test_another_machines_profile_says_what_differs(calibrated: Profile, other: Profile, workload: Workload) -> None:
    asked = [question(None, "keep", given, None) for given in (None, calibrated, other)]
    notes = [each.candidates(workload.modules).notes for each in asked]
    assert notes[0] == notes[1] == ()
    assert notes[2][0].startswith("the profile was measured on another machine or setup (CPU: Z80 -> ")
    unsaid = replace(other, created="")  # a GPU of the catalog is of no machine
    assert question(None, "keep", unsaid, None).candidates(workload.modules).notes == ()
