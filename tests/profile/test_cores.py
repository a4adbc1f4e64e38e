"""The cores of a CPU that share an op: stored with a profile, and asked for at any number of threads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from placer.errors import ProfileDamaged
from placer.profile import Cores, Device, Profile, load
from placer.profile.schema import decode, encode

CORE = load("intel-xeon-avx512-2-core").fit("cpu", 1)


def of(threads: int, pace: float = 1.0) -> Device:
    rates = {
        "flops/float32": CORE.rates["flops/float32"] * threads**0.8, "flops/bfloat16": 4e11,
        "bytes_per_second": 2e10 * threads, "dispatch_seconds": 1e-6,
    }  # fmt: skip
    cores = Cores(rates, 1e-6 * threads, rates["flops/float32"], rates["bytes_per_second"], 3e7, 5e-5, pace)
    return Device("cpu", threads, rates, {}, {}, {"base": 0.1 * threads, "ops": 0.5}, cores=cores)


def profile(*fits: Device) -> Profile:
    shipped = load("intel-xeon-avx512-2-core")
    return replace(shipped, fits=(CORE, *fits), fingerprint={**shipped.fingerprint, "threads": 16})


def test_several_threads_have_the_families_of_one_and_a_profile_keeps_them() -> None:
    before = profile(of(4, 1.1), of(16, 1.5))
    after = decode(encode(before), "a file")
    assert after.fits == before.fits
    for threads in (1, 4, 7, 16):
        assert after.fit("cpu", threads) == before.fit("cpu", threads)
    all_cores = before.fit("cpu", 16)
    assert all_cores.families == CORE.families
    assert all_cores.cores is not None
    assert all_cores.cores.rates == CORE.rates
    assert all_cores.rates["flops/float32"] == pytest.approx(of(16).rates["flops/float32"])
    assert all_cores.framework == {name: pytest.approx(1.5 * seconds) for name, seconds in CORE.framework.items()}
    assert all_cores.interval == of(16).interval
    # More threads than cores are no more cores.
    assert before.fit("cpu", 64) == before.fit("cpu") == all_cores
    assert before.fit("cpu", 1) == CORE
    # An estimate's prices are those of one core already, scaled.
    estimate = replace(of(16), families=CORE.families, estimated=True)
    assert replace(before, fits=(estimate,)).fit("cpu", 16) is estimate


def test_one_more_thread_is_worth_a_whole_one_until_memory_is_full() -> None:
    """One thread and sixteen are known, and four of them read all that memory gives."""
    full = replace(of(16), rates={**of(16).rates, "bytes_per_second": 4.0 * CORE.rates["bytes_per_second"]})
    assert full.cores is not None
    full = replace(full, cores=replace(full.cores, bytes_per_second=full.rates["bytes_per_second"]))
    rates = [profile(full).fit("cpu", threads).rates["bytes_per_second"] for threads in (1, 2, 4, 8, 15)]
    one, two, four, eight, most = (rate / CORE.rates["bytes_per_second"] for rate in rates)
    assert two == pytest.approx(2.0 * one, rel=0.02)
    assert 3.0 < four < 4.0
    assert 0.97 * 4.0 < eight < most < 4.0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda fits: fits.pop(0), "there is no fit of one thread"),
        (lambda fits: fits[1].update(device="cuda"), "only a CPU has them"),
        (lambda fits: fits[1]["rates"].pop("bytes_per_second"), "the rates have no bytes_per_second"),
        (lambda fits: fits[1]["cores"].update(pace=0.0), "pace"),
        (lambda fits: fits[1]["cores"].pop("thread_seconds"), "thread_seconds"),
    ],
)
def test_damage_is_told(change: Any, told: str) -> None:
    document = json.loads(encode(profile(of(16))))
    change(document["fits"])
    with pytest.raises(ProfileDamaged, match=told):
        decode(json.dumps(document).encode(), "a file")
