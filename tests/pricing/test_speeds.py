"""The speeds of a CPU by a reading beside a profile, and what a reading beside other programs is worth."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from placer import profile
from placer.machine import MeasuredSpeeds
from placer.pricing import CpuSpeeds, beside, small_step_seconds
from placer.pricing.speeds import as_nearest, unread
from placer.profile.profile import Profile

READING = MeasuredSpeeds(2, 1e-4, 2e11, 3e10, 1e11, 2e10, 2e-6)


@pytest.fixture(scope="module")
def intel() -> Profile:
    return profile.load("intel-xeon-avx512-2-core", samples=False)


def test_a_small_step_tells_how_fast_ops_are_started(intel: Profile) -> None:
    def found(small_step: float) -> CpuSpeeds:
        return beside(intel, replace(READING, small_step_seconds=small_step), threads=2)

    slow, fast = found(2e-4), found(1e-4)
    assert slow.dispatch_seconds == pytest.approx(2 * fast.dispatch_seconds)
    assert (fast.flops_per_second, fast.bytes_per_second) == (2e11, 3e10)


def test_speeds_of_another_number_of_threads_lie_between_those_of_one_and_of_all(intel: Profile) -> None:
    sixteen = MeasuredSpeeds(16, 1e-4, 8e11, 1.6e11, 1e11, 2e10, 5e-6)
    one, four, all_ = (beside(intel, sixteen, threads=threads) for threads in (1, 4, 16))
    assert (one.flops_per_second, one.bytes_per_second, one.region_seconds) == (1e11, 2e10, 0.0)
    assert (all_.flops_per_second, all_.bytes_per_second, all_.region_seconds) == (8e11, 1.6e11, 5e-6)
    assert four.flops_per_second == pytest.approx(math.sqrt(8e22))
    assert four.bytes_per_second == pytest.approx(math.sqrt(3.2e21))


def test_the_more_others_took_the_less_a_reading_says(intel: Profile) -> None:
    quiet, some, half, all_ = (
        beside(intel, replace(READING, others_share=share), threads=2) for share in (0.05, 0.2, 0.5, 1.0)
    )
    assert (quiet.doubt, quiet.note) == (0.0, "")
    assert half.doubt == pytest.approx(math.log(2.0) / math.sqrt(3.0))  # the true speed is up to twice that
    assert some.doubt < half.doubt < all_.doubt == unread(intel, 2, "").doubt
    assert "beside other programs, which took 50% of its time" in half.note


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("slower", [0.2, 0.8, 1.25, 5.0])
def test_beside_others_speeds_are_the_usual_ones_as_far_as_the_reading_allows(
    slower: float, threads: int, intel: Profile
) -> None:
    """Half of the time was others': this CPU is as fast as was read, or up to twice as fast."""
    usual = as_nearest(intel, threads)
    step = small_step_seconds(intel, threads if threads < 16 else 1)
    reading = MeasuredSpeeds(
        threads,
        slower * step,
        usual.flops_per_second / slower,
        usual.bytes_per_second / slower,
        usual.core_flops_per_second / slower,
        usual.core_bytes_per_second / slower,
        slower * usual.region_seconds,
        others_share=0.5,
    )
    found = beside(intel, reading, threads)
    allowed = min(max(1.0, slower / 2), slower)
    for name in ("dispatch_seconds", "region_seconds"):
        assert getattr(found, name) == pytest.approx(allowed * getattr(usual, name)), name
    for name in ("flops_per_second", "bytes_per_second", "core_flops_per_second", "core_bytes_per_second"):
        assert getattr(found, name) == pytest.approx(getattr(usual, name) / allowed), name


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_a_cpu_that_cannot_be_read_counts_as_the_nearest_and_says_why(threads: int, intel: Profile) -> None:
    found = unread(intel, threads, "no memory is left")
    core = intel.fit("cpu", 1).rates
    name = intel.fingerprint["cpu"]
    assert found.note == f"the speed of this CPU could not be read (no memory is left): it counts as {name}"
    assert found.doubt > beside(intel, replace(READING, others_share=0.5), threads=2).doubt
    assert found.core_flops_per_second == core["flops/float32"]
    if threads == 1:
        assert (found.flops_per_second, found.region_seconds) == (core["flops/float32"], 0.0)
    else:
        assert core["flops/float32"] < found.flops_per_second <= 1.1 * threads * core["flops/float32"]
        assert found.region_seconds > 0.0
