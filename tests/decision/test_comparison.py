"""What stands beside what, and under which names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from torch import nn

from placer.decision.candidates import Candidates, gather, without_maker
from placer.decision.comparison import Table, compare, trace_parts
from placer.errors import ProfileError
from placer.pricing import gpu_profile
from placer.profile import Profile
from placer.workload import make_workload


def table(candidates: Candidates) -> Table:
    return compare(trace_parts(make_workload(nn.Linear(8, 8), (4, 8), mode="train")), candidates)


def named(candidates: Candidates) -> Iterable[str]:
    found = table(candidates).costs
    assert all(prediction.device == name for name, prediction in found.items())
    return list(found)


def test_the_accelerator_of_another_profile_is_added(handmade_profile: Profile) -> None:
    other = replace(handmade_profile, name="/somewhere/lab.json")
    assert named(gather(handmade_profile, None, here=False, what_if=other)) == ["cpu", "cuda", "cuda@lab"]
    assert named(gather(handmade_profile, ("cpu",), here=False, what_if=gpu_profile("T4"))) == [
        "cpu", "cuda@Tesla T4",
    ]  # fmt: skip
    only_cpu = replace(other, fits=other.fits[:1])
    with pytest.raises(ProfileError, match=r"profile '/somewhere/lab.json' has no accelerator \(calibrated: cpu\)"):
        table(gather(handmade_profile, None, here=False, what_if=only_cpu))


def test_every_device_of_profiles_beside_is_added(handmade_profile: Profile) -> None:
    lab, unnamed = (replace(handmade_profile, name=name) for name in ("lab", ""))
    found = named(gather(handmade_profile, ("cpu",), here=False, beside=(lab, unnamed)))
    assert found == ["cpu", "cpu@lab", "cuda@lab", "cpu@profile", "cuda@profile"]


def test_profiles_of_one_name_are_told_apart_by_their_folders(handmade_profile: Profile) -> None:
    paths = ("/runs/a/profile", "/runs/b/profile", "b/profile", "/runs/lab", "profile", "profile")
    beside = tuple(replace(handmade_profile, name=f"{path}.json", fits=handmade_profile.fits[:1]) for path in paths)
    assert named(gather(handmade_profile, ("cpu",), here=False, beside=beside)) == [
        "cpu", "cpu@a/profile", "cpu@runs/b/profile", "cpu@b/profile", "cpu@lab", "cpu@profile", "cpu@profile (2)",
    ]  # fmt: skip


def test_a_gpus_maker_is_no_part_of_its_name() -> None:
    names = {"NVIDIA GeForce RTX 4090": "RTX 4090", "NVIDIA A100": "A100", "AMD Instinct MI210": "Instinct MI210",
             "Intel(R) Arc(TM) A770": "Arc(TM) A770", "Apple M1": "M1", "Tesla T4": "Tesla T4"}  # fmt: skip
    assert {name: without_maker(name) for name in names} == names


def test_here_the_cpu_runs_with_the_threads_of_the_process(handmade_profile: Profile) -> None:
    """It is priced with the nearest number that was calibrated; elsewhere it runs with the one that was."""
    cpu, cuda = handmade_profile.fits
    profile = replace(handmade_profile, fits=(replace(cpu, threads=5), cuda))
    other = replace(profile, fingerprint={**profile.fingerprint, "cpu": "Z80"})
    torch.set_num_threads(4)
    found = [table(gather(each, ("cpu",), here=False)).costs["cpu"] for each in (profile, other)]
    assert [prediction.threads for prediction in found] == [4, 5]


def test_numbers_of_threads_are_compared_where_that_is_asked_for(handmade_profile: Profile) -> None:
    cpu, cuda = handmade_profile.fits
    fast = replace(cpu, threads=7, rates={**cpu.rates, "dispatch_seconds": 1e-9, "flops/float32": 1e15})
    profile = replace(handmade_profile, fits=(replace(cpu, threads=torch.get_num_threads()), fast, cuda))
    kept, tuned = (table(gather(profile, None, threads=how, here=False)) for how in ("keep", "tune"))
    assert (kept.thread_options, len(tuned.thread_options)) == ((), 2)
    assert tuned.costs["cpu"].threads == 7
    assert table(gather(profile, ("cuda",), threads="tune", here=False)).thread_options == ()


def test_a_device_that_lacks_the_dtype_is_left_out_unless_it_is_the_only_one(handmade_profile: Profile) -> None:
    cpu, cuda = handmade_profile.fits
    profile = replace(handmade_profile, fits=(cpu, replace(cuda, device="mps")))
    model = nn.Linear(4, 2, dtype=torch.float64)
    workload = make_workload(model, example=torch.ones(3, 4, dtype=torch.float64))
    for devices, priced, told in (
        (None, ["cpu"], ("mps is left out: mps has no float64",)), (("mps",), ["mps"], ())
    ):  # fmt: skip
        found = compare(trace_parts(workload), gather(profile, devices, here=False))
        assert (list(found.costs), found.left_out) == (priced, told)
        assert all(line in found.decide().reason for line in told)
