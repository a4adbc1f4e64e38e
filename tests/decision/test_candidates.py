"""Which devices are compared: what is calibrated and can be used, one of each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from placer import machine
from placer.decision import candidates
from placer.decision.candidates import Candidates, conventional, gather, of_twins, unusable
from placer.decision.comparison import compare, trace_parts
from placer.errors import ProfileError
from placer.pricing import Residence
from placer.profile import Profile
from placer.workload import make_workload

SMALL = {"name": "Small", "memory_bytes": 8 * 2**30, "driver": "1"}
LARGE = {"name": "Large", "memory_bytes": 80 * 2**30, "driver": "1"}
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


class Machine:
    """The accelerators that are here, and what is known of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kinds: tuple[dict[str, Any], ...] = ()
        self.free: dict[str, int] = {}
        self.reserved: dict[str, int] = {}
        self.current: str | None = None  # None: the process uses no accelerator
        patch.setattr(machine, "available_devices", lambda: ("cpu", *self.names))
        patch.setattr(machine, "describe_accelerators", self.described)
        patch.setattr(machine, "known_free_memory", lambda name: self.free.get(name, 10**9))
        patch.setattr(machine, "reserved_memory", lambda name: self.reserved.get(name, 0))
        patch.setattr(machine, "has_context", lambda name: name == self.current or name in self.reserved)
        patch.setattr(machine, "current_device", lambda kind: self.current or kind)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"cuda:{i}" if i else "cuda" for i in range(len(self.kinds)))

    def described(self) -> list[dict[str, Any]]:
        return [{"device": name, **facts} for name, facts in zip(self.names, self.kinds, strict=True)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def calibrated(here: Machine, handmade: Profile, *devices: str, **values: Any) -> Profile:
    """The hand-made profile, calibrated on the present accelerators with fits of ``devices``."""
    cpu, cuda = handmade.fits
    fits = (cpu, *(replace(cuda, device=name) for name in devices))
    fingerprint = {**handmade.fingerprint, "accelerators": here.described()}
    return replace(handmade, fits=fits, fingerprint=fingerprint, **values)


def devices_of(found: Candidates) -> tuple[str, ...]:
    return tuple(each.name for each in found.each)


def test_of_twins_one_is_priced_with_the_fit_of_the_first(here: Machine, handmade_profile: Profile) -> None:
    here.kinds = (SMALL, SMALL, LARGE, SMALL)
    profile = calibrated(here, handmade_profile, "cuda", "cuda:2")
    found = gather(profile, None, here=True)
    assert devices_of(found) == ("cpu", "cuda", "cuda:2")
    here.current = "cuda:3"
    found = gather(profile, None, here=True)
    assert devices_of(found) == ("cpu", "cuda:3", "cuda:2")
    assert found.fitted_as == {"cpu": "cpu", "cuda": "cuda", "cuda:1": "cuda", "cuda:2": "cuda:2", "cuda:3": "cuda"}
    assert devices_of(gather(profile, ("cuda:1",), here=True)) == ("cuda:1",)


def test_which_of_twins(here: Machine) -> None:
    twins = ("cuda", "cuda:1", "cuda:2")
    assert of_twins(twins, "cpu") == "cuda"
    assert of_twins(twins, "cuda:2") == "cuda:2"  # where the model is
    here.free = {"cuda": 4 * 10**8, "cuda:1": 9 * 10**8, "cuda:2": 10**9}
    assert of_twins(twins, "cpu") == "cuda:1"  # another job has filled the first
    here.current, here.reserved = "cuda", {"cuda:2": 5}
    assert of_twins(twins, "cpu") == "cuda:2"  # where this process works
    here.current = "cuda:1"
    assert of_twins(twins, "cpu") == "cuda:1"  # set by the process


def test_hiding_and_showing_devices_finds_their_fits(here: Machine, handmade_profile: Profile) -> None:
    here.kinds = (SMALL, LARGE)
    profile = calibrated(here, handmade_profile, "cuda", "cuda:1")
    here.kinds = (LARGE,)  # CUDA_VISIBLE_DEVICES=1
    found = gather(profile, None, here=True)
    assert (devices_of(found), found.fitted_as["cuda"]) == (("cpu", "cuda"), "cuda:1")
    here.kinds = (SMALL, SMALL)
    assert gather(profile, None, here=True).fitted_as["cuda:1"] == "cuda"


def test_a_kind_that_was_never_calibrated_is_an_error_where_it_is_the_usual_one(
    here: Machine, handmade_profile: Profile
) -> None:
    here.kinds = (LARGE, SMALL)
    profile = calibrated(here, handmade_profile, "cuda:1")
    with pytest.raises(ProfileError, match=r"cuda is not calibrated \(calibrated: cpu, cuda:1\); run"):
        gather(profile, None, here=True)
    assert devices_of(gather(profile, ("cpu", "cuda:1"), here=True)) == ("cpu", "cuda:1")
    only = calibrated(here, handmade_profile, "cuda")
    assert devices_of(gather(only, None, here=True)) == ("cpu", "cuda")


def test_a_device_that_cannot_be_used_is_left_out_and_the_reason_says_why(
    here: Machine, handmade_profile: Profile
) -> None:
    here.kinds = (SMALL, LARGE)
    profile = calibrated(here, handmade_profile, "cuda:1", unusable={"cuda": NO_KERNEL})
    found = gather(profile, None, here=True)
    assert (devices_of(found), found.left_out) == (("cpu", "cuda:1"), {"cuda": NO_KERNEL})
    with pytest.raises(ProfileError, match=r"cuda cannot be used here \(RuntimeError: CUDA error: no kernel"):
        gather(profile, ("cuda",), here=True)
    table = compare(trace_parts(make_workload(nn.Linear(4, 2), (3, 4), mode="train")), found)
    told = f"cuda is left out: {NO_KERNEL}"
    assert table.decide().reason.endswith(f"; {told}")
    assert told in table.notes


def test_what_cannot_be_used_is_known_by_its_kind(here: Machine, handmade_profile: Profile) -> None:
    here.kinds = (SMALL, LARGE)
    profile = calibrated(here, handmade_profile, "cuda", unusable={"cuda:1": NO_KERNEL})
    here.kinds = (LARGE,)
    assert unusable("cuda", profile) == NO_KERNEL
    here.kinds = (SMALL,)
    assert unusable("cuda", profile) is None
    assert unusable("cpu", profile) is None
    assert unusable("cuda", None) is None


def test_versions_tell_before_any_calibration(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here.kinds = (SMALL,)
    monkeypatch.setattr(machine, "unsupported", lambda facts: f"no kernels for {facts['name']}")
    assert unusable("cuda", None) == "no kernels for Small"


def test_gpus_of_several_kinds_may_be_numbered_otherwise(
    here: Machine, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.kinds = (SMALL, LARGE)
    profile = calibrated(here, handmade_profile, "cuda", "cuda:1")
    monkeypatch.setattr(machine, "order_is_known", lambda: False)
    (note,) = gather(profile, None, here=True).notes
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in note
    here.kinds = (SMALL,)
    assert gather(profile, None, here=True).notes == ()


def test_where_the_order_is_not_known_no_device_gets_anothers_fit(
    here: Machine, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calibration had a context, so it knew which card is which; the driver alone lists the small one first."""
    here.kinds = (LARGE, SMALL)
    profile = calibrated(here, handmade_profile, "cuda", "cuda:1")
    here.kinds = (SMALL, LARGE)
    monkeypatch.setattr(machine, "order_is_known", lambda: False)
    found = gather(profile, None, here=True)
    assert found.fitted_as == {"cpu": "cpu", "cuda": "cuda", "cuda:1": "cuda:1"}


def test_versions_say_nothing_of_a_device_in_use(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here.kinds, here.current = (SMALL,), "cuda"
    monkeypatch.setattr(machine, "unsupported", lambda facts: "its driver is too old")
    assert unusable("cuda", None) is None


def test_by_convention_a_model_stays_on_its_accelerator(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    here.kinds, here.current = (SMALL, SMALL), "cuda"
    workload = make_workload(nn.Linear(4, 4), (2, 4))
    assert conventional(workload, None, "not calibrated").device == "cuda"
    monkeypatch.setattr(candidates, "residence", lambda *_: Residence(home="cuda:1"))
    assert conventional(workload, None, "not calibrated").device == "cuda:1"


def test_devices_of_another_machine_have_nothing_to_do_with_this_one(
    here: Machine, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.kinds, here.current, here.free = (SMALL,), "cuda", {"cuda": 1}
    workload = make_workload(nn.Linear(84, 4), (8, 84))
    traced = trace_parts(workload)
    mine = compare(traced, gather(handmade_profile, None, here=True)).costs["cuda"]
    other = compare(traced, gather(handmade_profile, None, here=False)).costs["cuda"]
    assert not mine.fits
    assert other.fits
    assert other.one_time_seconds > mine.one_time_seconds
