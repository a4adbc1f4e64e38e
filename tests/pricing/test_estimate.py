"""The profile of a machine that was not calibrated, and what may be named as one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from placer import machine, profile
from placer import profile as profiles
from placer.errors import ProfileError, ProfileMissing, UnknownGPU
from placer.pricing import (
    CpuSpeeds,
    cpu_from_speeds,
    cpu_profile,
    estimated_profile,
    nearest_profile,
    predict,
    speeds,
)
from placer.pricing.cpu_devices import cpu_from_sheet, speeds_of_sheet
from placer.pricing.estimate import named_profile
from placer.profile import cpu_kinds, find_cpu, kind_of, uncalibrated
from placer.profile.profile import Profile
from placer.tracing import Trace, trace
from placer.workload import make_workload

FACTS = machine.fingerprint()
WHY = "this machine is not calibrated; run: placer calibrate"


@pytest.fixture(scope="module")
def intel() -> Profile:
    return profile.load("intel-xeon-avx512-2-core")


def step(*sizes: int, rows: int) -> Trace:
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return trace(make_workload(nn.Sequential(*layers), (rows, sizes[0]), mode="train"))


def speeds_of(found: Profile, **changed: float) -> CpuSpeeds:
    rates = found.fit("cpu", 2).rates
    core = found.fit("cpu", 1).rates
    own = CpuSpeeds(
        rates["dispatch_seconds"],
        rates["flops/float32"],
        rates["bytes_per_second"],
        core["flops/float32"],
        core["bytes_per_second"],
        region_seconds=2e-6,
    )
    return replace(own, **changed)


def at_speeds(measured: Profile, **changed: float) -> Profile:
    """A CPU like the measured one, with two threads and some other speeds."""
    kind = kind_of(measured.fingerprint)
    device = cpu_from_speeds(measured, kind, speeds_of(measured, **changed), 2)
    return uncalibrated([device], measured.fingerprint, "other")


def seconds(found: Profile, of: Trace) -> float:
    return predict(of, found, devices=("cpu",), threads=2)["cpu"].step_seconds


def test_at_the_same_speeds_prices_are_the_same_and_the_interval_is_wider(intel: Profile) -> None:
    other, of = at_speeds(intel), step(64, 64, 8, rows=32)
    assert seconds(other, of) == pytest.approx(seconds(intel, of))
    before, after = (predict(of, found, devices=("cpu",), threads=2)["cpu"] for found in (intel, other))
    assert math.log(after.high / after.low) > 1.2 * math.log(before.high / before.low)
    assert (before.provenance, after.provenance) == ("calibrated", "published")
    assert after.coverage == before.coverage


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"cpu": "AMD EPYC 7763 64-Core Processor", "cpu_instructions": "AVX2", "cores": 64}, "AMD EPYC"),
        ({"cpu": "Intel(R) Core(TM) i7-11700", "cpu_instructions": "AVX512", "cores": 8}, "Intel(R) Xeon(R) Processor"),
    ],
)
def test_the_nearest_class_shares_vendor_and_instructions(facts: dict[str, Any], expected: str) -> None:
    found = nearest_profile({**FACTS, "cpu_version": "", **facts})
    assert found.fingerprint["cpu"] == expected
    assert found.fingerprint["cpu_instructions"] == facts["cpu_instructions"]


def test_every_part_of_a_step_follows_its_own_speed(intel: Profile) -> None:
    small, large = step(16, 16, rows=4), step(2048, 2048, rows=4096)
    rates = intel.fit("cpu", 2).rates
    slow_start = at_speeds(intel, dispatch_seconds=3 * rates["dispatch_seconds"])
    assert seconds(slow_start, small) / seconds(intel, small) > 2.5
    assert seconds(slow_start, large) / seconds(intel, large) < 1.2
    weak = at_speeds(intel, flops_per_second=rates["flops/float32"] / 3)
    assert seconds(weak, large) / seconds(intel, large) > 2.0
    assert seconds(weak, small) / seconds(intel, small) < 1.2


@pytest.mark.parametrize("kind", list(cpu_kinds()))
def test_a_named_cpu_is_a_core_of_its_kind_scaled_to_its_sheet(kind: str) -> None:
    sheet = replace(find_cpu("Xeon 8375C"), kind=kind)
    found = cpu_profile(sheet, 8)
    fit = found.fit("cpu")
    assert (found.threads("cpu"), found.fingerprint["cpu"], fit.estimated) == ((8,), sheet.name, True)
    assert fit.cores is not None
    peak = sheet.clock_ghz * 1e9 * sheet.flops_per_cycle
    assert fit.cores.rates["flops/float32"] == pytest.approx(cpu_kinds()[kind].reached * peak)
    assert 8 * peak > fit.rates["flops/float32"] > 4 * cpu_kinds()[kind].reached * peak
    faster = cpu_profile(replace(sheet, clock_ghz=2 * sheet.clock_ghz), 8)
    large, small = step(1024, 1024, rows=2048), step(16, 16, rows=4)
    for of in (large, small):
        slow, fast = (predict(of, each, devices=("cpu",), threads=8)["cpu"].step_seconds for each in (found, faster))
        assert 1.2 < slow / fast < 2.3


def read_as(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """The speed of this CPU, without the new process that reads it."""
    read = replace(CpuSpeeds(1e-6, 2e11, 3e10, 1e11, 2e10, region_seconds=2e-6), **changed)
    monkeypatch.setattr(speeds, "read_apart", lambda facts, threads: read)


GPU = {"device": "cuda", "name": "Tesla T4", "memory_bytes": 16 * 10**9, "driver": "560"}


def with_gpu(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    read_as(monkeypatch)
    monkeypatch.setattr(machine, "fingerprint", lambda: {**FACTS, "accelerators": [{**GPU, **changed}]})


@pytest.mark.parametrize(("name", "provenance"), [("Tesla T4", "published"), ("NVIDIA GeForce GTX 1650", "data sheet")])
def test_an_accelerator_is_found_by_the_name_that_its_driver_gives(
    name: str, provenance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpu(monkeypatch, name="Frobnicator 9000")
    assert estimated_profile(None, WHY, 2).devices() == ("cpu",)  # nobody knows it
    with_gpu(monkeypatch, name=name)
    found = estimated_profile(None, WHY, 2)
    assert (found.devices(), found.estimated, found.complete) == (("cpu", "cuda"), True, True)
    priced = predict(step(64, 64, rows=8), found, devices=found.devices(), threads=2)
    assert {device: p.provenance for device, p in priced.items()} == {"cpu": "published", "cuda": provenance}


def test_what_holds_of_a_calibration_is_kept(handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU was added: the CPU is still the calibrated one. Another torch: nothing is."""
    cpu = replace(handmade_profile, fits=handmade_profile.fits[:1], fingerprint=FACTS)
    with_gpu(monkeypatch)
    found = estimated_profile(cpu, WHY, 2)
    assert found.fit("cpu") is cpu.fit("cpu")
    assert [fit.estimated for fit in found.fits] == [False, True]
    older = replace(cpu, fingerprint={**FACTS, "torch": "1.0"})
    assert all(fit.estimated for fit in estimated_profile(older, WHY, 2).fits)


def test_the_calibration_of_an_accelerator_is_kept_while_its_host_is_the_same(
    handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = replace(handmade_profile, fingerprint={**FACTS, "accelerators": [GPU]})
    with_gpu(monkeypatch)
    assert estimated_profile(both, WHY, 2).fit("cuda") is both.fit("cuda")
    with_gpu(monkeypatch, driver="570")
    assert estimated_profile(both, WHY, 2).fit("cuda").gpu == "Tesla T4"


def test_an_estimate_is_never_written_as_a_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_as(monkeypatch)
    with pytest.raises(ProfileError, match="estimate"):
        profile.save(estimated_profile(None, WHY, 2), tmp_path / "p.json")


def test_profiles_come_before_the_catalog(handmade_profile: Profile) -> None:
    profiles.save(handmade_profile, profiles.named_path("T4"))
    assert named_profile("T4", lambda: None).devices() == ("cpu", "cuda")
    assert named_profile("Tesla T4", lambda: None).devices() == ("cuda",)
    assert named_profile(handmade_profile, lambda: None) is handmade_profile


def test_an_unknown_name_lists_what_is_close_and_how_to_list_both() -> None:
    with pytest.raises(UnknownGPU, match=r"no profile .* placer profile list; no GPU .*RTX 4090.*placer gpus"):
        named_profile("RTX 4099", lambda: None)
    with pytest.raises(UnknownGPU, match=r"there is: .*placer profile list; no GPU .*closest.*T4.*placer gpus"):
        named_profile("T4x", lambda: None)
    with pytest.raises(UnknownGPU, match="no GPU is called ''"):
        named_profile("", lambda: None)


def test_a_missing_file_is_one(tmp_path: Path) -> None:
    for name in (str(tmp_path / "none.json"), tmp_path / "T4", str(tmp_path / "none"), None):
        with pytest.raises(ProfileMissing):
            named_profile(name, lambda: None)
    (tmp_path / "T4.json").write_text("{}")
    with pytest.raises(ProfileError, match="not a placer profile"):
        named_profile(str(tmp_path / "T4.json"), lambda: None)


@pytest.mark.parametrize(
    ("cpu", "name"),
    [
        ("Apple M2", "apple-accelerate"),
        ("aarch64 implementer 0x41 part 0xd4f", "arm"),
    ],
)
def test_a_machine_of_a_kind_that_was_never_calibrated_is_a_core_of_its_kind(cpu: str, name: str) -> None:
    facts = {"cpu": cpu, "cpu_instructions": "DEFAULT", "cores": 4}
    kind, sheet = kind_of(facts), find_cpu(cpu)
    assert kind.name == name
    read = cpu_from_speeds(nearest_profile(facts), kind, speeds_of_sheet(sheet, 4), 4)
    by_sheet = cpu_from_sheet(sheet, 4)
    images = trace(make_workload(nn.Conv2d(3, 8, 3), (4, 3, 32, 32), mode="infer"))
    for of in (images, step(64, 64, rows=32)):
        both = [uncalibrated([device], facts, "one") for device in (read, by_sheet)]
        first, second = (predict(of, each, devices=("cpu",), threads=4)["cpu"].step_seconds for each in both)
        assert 0.8 < first / second < 1.25
