"""The loader against a million inputs, and the store against twelve processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fuzzing import Outcome, fuzz

from placer import profile as profiles
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


def test_twelve_processes(
    handmade_profile: Profile, tmp_path: Path, share: float, note: Callable[[str, str], None]
) -> None:
    sources = [
        str(profiles.save(replace(handmade_profile, created=f"2026-01-{day:02d}"), tmp_path / f"{day}.json"))
        for day in range(1, 9)
    ]
    target = profiles.save(profiles.load(sources[0]), tmp_path / "p.json")
    program = Path(__file__).resolve().parents[1] / "busy_store.py"
    command = [sys.executable, str(program), str(target), *sources, str(max(SECONDS * share, 2.0))]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    writes = reads = 0
    for process in running:
        output, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
        written, read = map(int, output.split())
        writes, reads = writes + written, reads + read
    note("processes", f"{PROCESSES} processes, {writes:,} saves, {reads:,} whole reads, no exception")
