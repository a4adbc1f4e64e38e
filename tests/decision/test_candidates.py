"""Which devices are compared, under which names: what is calibrated and can be used, one of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from placer import machine
from placer.decision import candidates
from placer.decision.candidates import (
    Candidates,
    conventional,
    gather,
    of_twins,
    residence,
    unusable,
)
from placer.decision.pipeline import Question, answer
from placer.decision.steps import identity_of
from placer.errors import ProfileError
from placer.pricing import gpu_profile
from placer.profile import Profile
from placer.tracing import trace
from placer.workload import make_workload

SMALL = {"name": "Small", "memory_bytes": 8 * 2**30, "driver": "1"}
LARGE = {"name": "Large", "memory_bytes": 80 * 2**30, "driver": "1"}
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


class Machine:
    """The accelerators that are here, and what is known of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kinds: tuple[dict[str, Any], ...] = ()
        self.free: dict[str, int] = {}
        self.current: str | None = None  # None: the process uses no accelerator
        patch.setattr(machine, "available_devices", lambda: ("cpu", *self.names))
        patch.setattr(machine, "describe_accelerators", self.described)
        patch.setattr(machine, "known_free_memory", lambda name: self.free.get(name, 10**9))
        patch.setattr(machine, "has_context", lambda name: name == self.current)
        patch.setattr(machine, "current_device", lambda kind: self.current or kind)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"cuda:{i}" if i else "cuda" for i in range(len(self.kinds)))

    def described(self) -> list[dict[str, Any]]:
        return [{"device": name, **facts} for name, facts in zip(self.names, self.kinds, strict=True)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def known(here: Machine, handmade: Profile, *devices: str, **values: Any) -> Profile:
    """The hand-made profile, calibrated on the present accelerators with fits of ``devices``."""
    cpu, cuda = handmade.fits
    fits = (cpu, *(replace(cuda, device=name) for name in devices))
    fingerprint = {**handmade.fingerprint, "accelerators": here.described()}
    return replace(handmade, fits=fits, fingerprint=fingerprint, **values)


def devices_of(found: Candidates) -> tuple[str, ...]:
    return tuple(each.name for each in found.each)


def test_of_twins_one_is_priced_with_the_fit_of_the_first(here: Machine, handmade_profile: Profile) -> None:
    here.kinds = (SMALL, SMALL, LARGE, SMALL)
    profile = known(here, handmade_profile, "cuda", "cuda:2")
    found = gather(profile, None, here=True)
    assert devices_of(found) == ("cpu", "cuda", "cuda:2")
    here.current = "cuda:3"
    found = gather(profile, None, here=True)
    assert devices_of(found) == ("cpu", "cuda:3", "cuda:2")
    assert found.fitted_as == {"cpu": "cpu", "cuda": "cuda", "cuda:1": "cuda", "cuda:2": "cuda:2", "cuda:3": "cuda"}
    assert devices_of(gather(profile, ("cuda:1",), here=True)) == ("cuda:1",)
    here.current = None
    here.free = {"cuda": 4 * 10**8, "cuda:1": 9 * 10**8, "cuda:2": 10**9, "cuda:3": 10**9}
    assert devices_of(gather(profile, None, here=True))[1] == "cuda:1"  # another job has filled the first
    assert of_twins(("cuda", "cuda:1", "cuda:3"), "cuda:3") == "cuda:3"  # where the model is


def test_a_kind_that_was_never_calibrated_is_an_error_where_it_is_the_usual_one(
    here: Machine, handmade_profile: Profile
) -> None:
    here.kinds = (LARGE, SMALL)
    profile = known(here, handmade_profile, "cuda:1")
    with pytest.raises(ProfileError, match=r"cuda is not calibrated \(calibrated: cpu, cuda:1\); run"):
        gather(profile, None, here=True)
    assert devices_of(gather(profile, ("cpu", "cuda:1"), here=True)) == ("cpu", "cuda:1")
    only = known(here, handmade_profile, "cuda")
    assert devices_of(gather(only, None, here=True)) == ("cpu", "cuda")


def test_a_device_that_cannot_be_used_is_left_out_and_the_reason_says_why(
    here: Machine, handmade_profile: Profile
) -> None:
    here.kinds = (SMALL, LARGE)
    profile = known(here, handmade_profile, "cuda:1", unusable={"cuda": NO_KERNEL})
    found = gather(profile, None, here=True)
    assert (devices_of(found), found.left_out) == (("cpu", "cuda:1"), {"cuda": NO_KERNEL})
    with pytest.raises(ProfileError, match=r"cuda cannot be used here \(RuntimeError: CUDA error: no kernel"):
        gather(profile, ("cuda",), here=True)
    table = answer(Question(make_workload(nn.Linear(4, 2), (3, 4), mode="train"), found))
    told = f"cuda is left out: {NO_KERNEL}"
    assert table.decide().reason.endswith(f"; {told}")
    assert told in table.notes


def test_hidden_and_reordered_devices_find_their_fits(
    here: Machine, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the driver alone may list them in another order, none gets another's fit."""
    here.kinds = (LARGE, SMALL)
    profile = known(here, handmade_profile, "cuda", "cuda:1")
    here.kinds = (SMALL,)  # CUDA_VISIBLE_DEVICES=1
    assert gather(profile, None, here=True).fitted_as == {"cpu": "cpu", "cuda": "cuda:1"}
    here.kinds = (SMALL, LARGE)
    monkeypatch.setattr(machine, "order_is_known", lambda: False)
    assert gather(profile, None, here=True).fitted_as == {"cpu": "cpu", "cuda": "cuda", "cuda:1": "cuda:1"}


def test_what_cannot_be_used_is_known_by_its_kind(
    here: Machine, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.kinds = (SMALL, LARGE)
    profile = known(here, handmade_profile, "cuda", unusable={"cuda:1": NO_KERNEL})
    here.kinds = (LARGE,)
    assert unusable("cuda", profile) == NO_KERNEL
    here.kinds = (SMALL,)
    assert (unusable("cuda", profile), unusable("cpu", profile), unusable("cuda", None)) == (None, None, None)
    monkeypatch.setattr(machine, "unsupported", lambda facts: f"no kernels for {facts['name']}")
    assert unusable("cuda", None) == "no kernels for Small"  # versions tell before any calibration
    here.current = "cuda"  # but nothing of a device in use
    assert unusable("cuda", None) is None


def test_devices_of_another_machine_have_nothing_to_do_with_this_one(here: Machine, handmade_profile: Profile) -> None:
    here.kinds, here.current, here.free = (SMALL,), "cuda", {"cuda": 1}
    workload = make_workload(nn.Linear(84, 4), (8, 84))
    mine, other = (
        answer(Question(workload, gather(handmade_profile, None, here=is_here))).costs["cuda"]
        for is_here in (True, False)
    )
    assert (mine.fits, other.fits) == (False, True)
    assert other.one_time_seconds > mine.one_time_seconds


# --- without a prediction: the rule of every training script ----------------------------------------------------------


def usual(model: nn.Module, devices: tuple[str, ...] | None = None, **values: Any) -> tuple[str, str]:
    found = conventional(make_workload(model, (4, 10), **{"mode": "infer", **values}), devices, "why")
    assert (found.confidence, found.threads) == (None, torch.get_num_threads())
    return found.device, found.reason


def test_an_accelerator_is_taken_where_the_model_fits(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(10, 10)
    assert usual(model) == ("cpu", "cpu: by the default rule, as no accelerator is present (why)")
    here.kinds = (SMALL, SMALL)
    assert usual(model) == ("cuda", "cuda: by the default rule, as an accelerator is present (why)")
    here.free = {"cuda": 100, "cuda:1": 440}
    assert usual(model)[0] == "cuda:1"
    assert usual(model, mode="train")[0] == "cpu"  # gradients and two optimizer states
    assert usual(nn.LazyLinear(3))[0] == "cuda"
    here.free["cuda:1"] = 439
    assert usual(model) == ("cpu", "cpu: by the default rule, as the model does not fit on the accelerator (why)")
    assert usual(model, ("cuda:1",))[0] == "cuda:1"  # nothing else was asked for
    monkeypatch.setattr(candidates, "unusable", lambda name, _: "too old" if name == "cuda:1" else None)
    here.free = {}
    assert usual(model, ("cpu", "cuda:1"))[1] == "cpu: by the default rule, as cuda:1 cannot be used: too old (why)"


def quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(10, 10)), {nn.Linear}, dtype=torch.qint8)


QUANTIZED = "not to be moved: layer '0' (Linear) is quantized for the CPU: choose before that"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
def test_a_bound_model_stays_whatever_was_asked_for(here: Machine, handmade_profile: Profile) -> None:
    here.kinds = (SMALL, LARGE)
    model, profile = quantized(), known(here, handmade_profile)  # that no accelerator is calibrated does not matter
    compared = gather(profile, None, here=True, modules=[model])
    assert devices_of(compared) == ("cpu",)
    table = answer(Question(make_workload(model, (4, 10), mode="infer"), compared))
    assert table.left_out == (f"cuda, cuda:1 are left out: {QUANTIZED}",)
    with pytest.raises(ProfileError, match=r"cuda cannot be used here \(not to be moved: layer '0'"):
        gather(profile, ["cuda"], here=True, modules=[model])
    assert usual(model, ("cuda",)) == ("cpu", f"cpu: {QUANTIZED} (why)")


def test_what_a_step_uses_is_held_where_it_is() -> None:
    model = nn.Sequential(nn.Linear(100, 100, bias=False), nn.BatchNorm1d(100, affine=False))
    model.append(nn.Linear(100, 100, bias=False))
    model[2].weight = model[0].weight  # tied weights are held once
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 100)).sum().backward()
    optimizer.step()
    buffers = 2 * 100 * 4 + 8
    for options, held in (
        ({"mode": "train", "optimizer": optimizer}, 4 * 40_000 + 4),  # the weight, its gradient, two moments, a counter
        ({"mode": "train", "optimizer": "adam"}, 2 * 40_000),
        ({"mode": "infer"}, 40_000),
    ):
        assert residence(make_workload(model, (8, 100), **options), {}).held == {"cpu": held + buffers}


# --- names, and profiles beside each other ----------------------------------------------------------------------------


def named(profile: Profile, devices: Sequence[str] | None = None, **values: Any) -> list[str]:
    workload = make_workload(nn.Linear(8, 8), (4, 8), mode="train")
    found = answer(Question(workload, gather(profile, devices, here=False, **values))).costs
    assert all(prediction.device == name for name, prediction in found.items())
    return list(found)


def test_devices_of_other_profiles_have_names_of_their_own(handmade_profile: Profile) -> None:
    lab, unnamed = (replace(handmade_profile, name=name) for name in ("/somewhere/lab.json", ""))
    assert named(handmade_profile, what_if=[lab, gpu_profile("T4")]) == ["cpu", "cuda", "cuda@lab", "cuda@Tesla T4"]
    assert named(handmade_profile, ("cpu",), what_if=[replace(lab, fits=lab.fits[:1])]) == ["cpu", "cpu@lab"]
    names = named(handmade_profile, ("cpu",), others=(lab, unnamed))
    assert names == ["cpu", "cpu@lab", "cuda@lab", "cpu@profile", "cuda@profile"]
    paths = ("/runs/a/profile", "profile", "profile")
    others = [replace(handmade_profile, name=f"{path}.json", fits=handmade_profile.fits[:1]) for path in paths]
    names = named(handmade_profile, ("cpu",), others=others)
    assert names == ["cpu", "cpu@a", "cpu@profile", "cpu@profile (2)"]


def test_another_machines_profile_says_what_differs(handmade_profile: Profile) -> None:
    other = replace(handmade_profile, fingerprint={**handmade_profile.fingerprint, "cpu": "Z80"})
    (note,) = gather(other, None, here=False).notes
    assert note.startswith("the profile was measured on another machine or setup (CPU: Z80 -> ")
    for found in (handmade_profile, replace(other, created="")):  # a GPU of the catalog is of no machine
        assert gather(found, None, here=False).notes == ()


# --- switches of torch ------------------------------------------------------------------------------------------------


def test_a_switch_that_changes_kernels_is_said_and_part_of_the_step(
    here: Machine, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step times recorded without it are not taken, of any size."""
    here.kinds = (SMALL,)
    profile = known(here, handmade_profile, "cuda")
    assert gather(profile, None, here=True).notes == ()
    workload = make_workload(nn.Linear(4, 2), (3, 4), mode="train")
    traced = trace(workload)
    usual = identity_of(workload, traced)
    for name, value in (("benchmark", True), ("deterministic", True), ("enabled", False)):
        with monkeypatch.context() as patch:
            patch.setattr(torch.backends.cudnn, name, value)
            assert "not predicted: " in gather(profile, None, here=True).notes[0]
            unusual = identity_of(workload, traced)
            assert (unusual.step == usual.step, unusual.network == usual.network) == (False, False)
    torch.set_float32_matmul_precision("medium")
    assert identity_of(workload, traced).step != usual.step


def test_what_changes_kernels_of_the_cpu_is_said_where_only_it_is_compared(
    here: Machine, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.kinds = ()
    profile = known(here, handmade_profile)
    assert gather(profile, None, here=True).notes == ()
    torch.set_float32_matmul_precision("medium")
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    (note,) = gather(profile, None, here=True).notes
    assert note.endswith("is not predicted: deterministic algorithms, float32 matmul precision")
