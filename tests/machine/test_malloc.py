"""This process's own heap, asked and settled: on glibc; elsewhere nothing is known, and nothing breaks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from placer.machine import FIRST_THRESHOLD, LAST_THRESHOLD, malloc


def test_the_threshold_grows_to_its_limit_when_settled() -> None:
    # In a process of its own: this one has freed blocks of many sizes already.
    code = (
        "from placer.machine import malloc\n"
        "before = malloc.state(); malloc.settle(); after = malloc.state()\n"
        "print(before.threshold if before else 'unknown', after.threshold if after else 'unknown')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    before, after = done.stdout.split()
    if after == "unknown":
        pytest.skip("not glibc's allocator")
    assert FIRST_THRESHOLD <= int(before) <= int(after)
    assert int(after) >= 0.9 * LAST_THRESHOLD


def test_asking_twice_gives_the_same() -> None:
    first, second = malloc.state(), malloc.state()
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert second.threshold >= first.threshold


def test_without_glibc_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc, "_glibc", lambda: None)
    assert malloc.state() is None
    malloc.settle()

