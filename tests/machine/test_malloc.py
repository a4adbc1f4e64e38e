"""This process's own heap, read and settled: on glibc; elsewhere nothing is known, and nothing breaks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from placer.machine import FIRST_THRESHOLD, LAST_THRESHOLD, HeapState, malloc
from placer.machine.malloc import state

LINES = """
from placer.machine import malloc
if malloc.state() is None: raise SystemExit("not glibc's allocator")
library, _ = malloc._glibc()
"""


def told(code: str) -> list[int]:
    """What a process of its own prints: this one has freed blocks of many sizes already."""
    done = subprocess.run([sys.executable, "-c", LINES + code], capture_output=True, text=True, timeout=60)
    if "not glibc" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_the_threshold_is_that_of_the_largest_mapped_block_freed() -> None:
    at_first, later, settled = told(
        "print(malloc.state().threshold)\n"
        "library.free(library.malloc(8 << 20)); print(malloc.state().threshold)\n"
        "malloc.settle(); print(malloc.state().threshold)"
    )
    assert FIRST_THRESHOLD <= at_first < 8 << 20 <= later <= (8 << 20) + 8192
    assert 0.99 * LAST_THRESHOLD <= settled <= LAST_THRESHOLD


def test_reading_changes_nothing() -> None:
    """Blocks of more sizes than were ever freed would be mapped, and freeing them would raise the threshold."""
    before, after, *heaps = told(
        "def heap(): now = library.mallinfo2(); return now.arena, now.hblkhd\n"
        "first, then = malloc.state(), heap()\n"
        "for _ in range(20): malloc.state()\n"
        "print(first.threshold, malloc.state().threshold, *then, *heap())"
    )
    assert before == after
    assert heaps[:2] == heaps[2:]


def test_another_allocators_file_has_no_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    assert malloc._variables(0) == []
    malloc._glibc.cache_clear()
    monkeypatch.setattr(malloc, "_variables", lambda _: [])
    try:
        assert state() is None
        malloc.settle()
    finally:
        malloc._glibc.cache_clear()


def test_without_glibc_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    malloc._glibc.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    try:
        assert state() is None
        malloc.settle()
    finally:
        malloc._glibc.cache_clear()
    assert HeapState().threshold == FIRST_THRESHOLD
