"""The profile of a machine that was not calibrated, and what may be named as one."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from placer import machine
from placer import profile as profiles
from placer.errors import ProfileError, ProfileMissing, UnknownGPU
from placer.pricing import (
    CpuSpeeds,
    Prediction,
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
INTEL = profiles.load("intel-xeon-avx512-2-core")
WHY = "this machine is not calibrated; run: placer calibrate"


def step(*sizes: int, rows: int) -> Trace:
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return trace(make_workload(nn.Sequential(*layers), (rows, sizes[0]), mode="train"))


def at_speeds(measured: Profile, **changed: float) -> Profile:
    """A CPU like the measured one, with two threads and some other speeds."""
    rates, core = (measured.fit("cpu", threads).rates for threads in (2, 1))
    speeds = CpuSpeeds(
        rates["dispatch_seconds"],
        rates["flops/float32"],
        rates["bytes_per_second"],
        core["flops/float32"],
        core["bytes_per_second"],
        region_seconds=2e-6,
    )
    device = cpu_from_speeds(measured, kind_of(measured.fingerprint), replace(speeds, **changed), 2)
    return uncalibrated([device], measured.fingerprint, "other")


def priced(of: Trace, found: Profile, threads: int = 2) -> Prediction:
    return predict(of, found, devices=("cpu",), threads=threads)["cpu"]


def test_at_the_same_speeds_prices_are_the_same_and_the_interval_is_wider() -> None:
    before, after = (priced(step(64, 64, 8, rows=32), found) for found in (INTEL, at_speeds(INTEL)))
    assert after.step_seconds == pytest.approx(before.step_seconds)
    assert math.log(after.high / after.low) > 1.2 * math.log(before.high / before.low)
    assert (before.provenance, after.provenance) == ("calibrated", "published")
    assert after.coverage == before.coverage


def test_every_part_of_a_step_follows_its_own_speed() -> None:
    small, large = step(16, 16, rows=4), step(2048, 2048, rows=4096)
    rates = INTEL.fit("cpu", 2).rates
    for changed, follows, stays in (
        (at_speeds(INTEL, dispatch_seconds=3 * rates["dispatch_seconds"]), (small, 2.5), large),
        (at_speeds(INTEL, flops_per_second=rates["flops/float32"] / 3), (large, 2.0), small),
    ):
        affected, least = follows
        assert priced(affected, changed).step_seconds > least * priced(affected, INTEL).step_seconds
        assert priced(stays, changed).step_seconds < 1.2 * priced(stays, INTEL).step_seconds


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
        slow, fast = (priced(of, each, 8).step_seconds for each in (found, faster))
        assert 1.2 < slow / fast < 2.3


GPU = {"device": "cuda", "name": "Tesla T4", "memory_bytes": 16 * 10**9, "driver": "560"}


def with_gpu(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """A machine with a GPU, and the speed of its CPU without the new process that reads it."""
    read = CpuSpeeds(1e-6, 2e11, 3e10, 1e11, 2e10, region_seconds=2e-6)
    monkeypatch.setattr(speeds, "read_apart", lambda facts, threads: read)
    monkeypatch.setattr(machine, "fingerprint", lambda: {**FACTS, "accelerators": [{**GPU, **changed}]})


@pytest.mark.parametrize(("name", "provenance"), [("Tesla T4", "published"), ("NVIDIA GeForce GTX 1650", "data sheet")])
def test_an_accelerator_is_found_by_the_name_that_its_driver_gives(
    name: str, provenance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an estimate is never written as a calibration."""
    with_gpu(monkeypatch, name="Frobnicator 9000")
    assert estimated_profile(None, WHY, 2).devices() == ("cpu",)  # nobody knows it
    with_gpu(monkeypatch, name=name)
    found = estimated_profile(None, WHY, 2)
    assert (found.devices(), found.estimated, found.complete) == (("cpu", "cuda"), True, True)
    costs = predict(step(64, 64, rows=8), found, devices=found.devices(), threads=2)
    assert {device: cost.provenance for device, cost in costs.items()} == {"cpu": "published", "cuda": provenance}
    with pytest.raises(ProfileError, match="estimate"):
        profiles.save(found)


def test_what_holds_of_a_calibration_is_kept(handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU was added, or has another driver: the CPU is still the calibrated one. Another torch: nothing is."""
    both = replace(handmade_profile, fingerprint={**FACTS, "accelerators": [GPU]})
    cpu = replace(both, fits=both.fits[:1], fingerprint=FACTS)
    older = replace(both, fingerprint={**both.fingerprint, "torch": "1.0"})
    for calibrated, changed, estimated in (
        (both, {}, [False, False]),
        (both, {"driver": "570"}, [False, True]),
        (cpu, {}, [False, True]),
        (older, {}, [True, True]),
    ):
        with_gpu(monkeypatch, **changed)
        fits = estimated_profile(calibrated, WHY, 2).fits
        assert [fit.estimated for fit in fits] == estimated
        assert [fit in calibrated.fits for fit in fits] == [not each for each in estimated]
        assert not estimated[1] or fits[1].gpu == "Tesla T4"


def test_a_profile_comes_before_a_gpu_of_the_catalog_and_a_file_is_one(
    handmade_profile: Profile, tmp_path: Path
) -> None:
    profiles.save(handmade_profile, profiles.named_path("T4"))
    assert named_profile("T4", lambda: None).devices() == ("cpu", "cuda")
    assert named_profile("Tesla T4", lambda: None).devices() == ("cuda",)
    assert named_profile(handmade_profile, lambda: None) is handmade_profile
    (tmp_path / "T4.json").write_text("{}")
    listed = "placer profile list; no GPU .*{}.*placer gpus"
    for name, error, says in (
        ("RTX 4099", UnknownGPU, listed.format("RTX 4090")),
        ("T4x", UnknownGPU, "there is: .*" + listed.format("closest.*T4")),
        ("", UnknownGPU, "no GPU is called ''"),
        (str(tmp_path / "T4.json"), ProfileError, "not a placer profile"),
        (str(tmp_path / "none.json"), ProfileMissing, "none"),
        (tmp_path / "T4", ProfileMissing, "T4"),
        (str(tmp_path / "none"), ProfileMissing, "none"),
        (None, ProfileMissing, "placer calibrate"),
    ):
        with pytest.raises(error, match=says):
            named_profile(name, lambda: None)


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
        first, second = (priced(of, uncalibrated([each], facts, "one"), 4).step_seconds for each in (read, by_sheet))
        assert 0.8 < first / second < 1.25
