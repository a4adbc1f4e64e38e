"""The loader against a million inputs, and the store against twelve processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from busy_store import together
from fuzzing import Outcome, fuzz

from placer.profile.profile import Profile
from placer.profile.schema import encode

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]
INPUTS = 1_000_000
PROCESSES, SECONDS = 12, 60.0
#: What the loader may hold on to, over a million inputs.
MOST_GROWTH = 64 * 2**20
#: Seconds of processor time after which an input counts as one that hangs the loader.
SLOWEST = 5.0


def test_a_million_damaged_profiles(handmade_profile: Profile, share: float, note: Callable[[str, str], None]) -> None:
    content = encode(handmade_profile)
    process, inputs, outcome = psutil.Process(), max(int(INPUTS * share), 10_000), Outcome()
    fuzz(content, inputs // 10, outcome)
    start = process.memory_info().rss
    fuzz(content, inputs - outcome.inputs, outcome, first_seed=10_000)
    growth = process.memory_info().rss - start
    assert growth < MOST_GROWTH
    assert outcome.slowest < SLOWEST
    grown = f"memory grew by {max(growth, 0) / 2**20:.0f} MiB"
    counted = f"{outcome.inputs:,} inputs by hypothesis, {outcome.refused:,} refused, no other error"
    note("fuzz", f"{counted}; slowest {outcome.slowest:.2f} s of processor time; {grown}")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # beside threads
def test_twelve_processes(
    handmade_profile: Profile, tmp_path: Path, share: float, note: Callable[[str, str], None]
) -> None:
    counts = together(handmade_profile, tmp_path, PROCESSES, max(SECONDS * share, 2.0))
    writes, reads = (sum(numbers) for numbers in zip(*counts, strict=True))
    note("processes", f"{PROCESSES} processes, {writes:,} saves, {reads:,} whole reads, no exception")
