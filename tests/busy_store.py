"""Processes that save and read one profile together."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from placer import profile as profiles
from placer.decision import history
from placer.profile.profile import Profile

#: Reads of a process at least: with a save before about every third of them, no process is left without one.
LEAST = 50


def together(profile: Profile, folder: Path, processes: int, seconds: float) -> list[tuple[int, int]]:
    """The numbers of writes and reads of each process, for some seconds, or longer on a slow machine."""
    known = [replace(profile, created=f"2026-01-{day:02d}") for day in range(1, 9)]
    target = profiles.save(known[0], folder / "p.json")
    # Not a Pool, which ends its processes by SIGTERM: what they inherit from this one may keep them from ending.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), random.seed) as pool:
        running = [pool.submit(keep_busy, target, known, seconds) for _ in range(processes)]
    return [process.result() for process in running]


def keep_busy(path: Path, known: Sequence[Profile], seconds: float) -> tuple[int, int]:
    allowed = {profile.created: profile for profile in known}
    end = time.monotonic() + seconds
    writes = reads = 0
    while time.monotonic() < end or reads < LEAST:
        if random.random() < 0.3:
            profiles.save(random.choice(known), path)
            writes += 1
        found = profiles.load(path)
        right = allowed[found.created]
        assert (found.fits, found.fingerprint) == (right.fits, right.fingerprint)
        history.record({"number": reads, "padding": "x" * random.randrange(400)})
        assert all("number" in entry and "time" in entry for entry in history.last(5))
        reads += 1
    return writes, reads
