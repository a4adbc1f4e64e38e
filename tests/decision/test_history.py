"""The history: what goes in comes out, it stays small, and it never fails its caller."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from placer.decision import history


def test_entries_come_back_newest_last_and_damaged_lines_are_skipped() -> None:
    assert history.last() == history.lines_with("number") == []
    for number in range(3):
        assert history.record({"number": number}) is None
    with history.history_path().open("ab") as file:
        file.write(b'{"number": 2\n\xff\xfe\n[]\n' + b"[" * 100_000 + b"\n")
    history.record({"number": 3})
    assert [entry["number"] for entry in history.last(3)] == [1, 2, 3]
    assert "time" in history.last()[0]
    assert (len(history.last(99)), history.last(0)) == (4, [])
    assert [json.loads(line)["number"] for line in history.lines_with('"number":3')] == [3]


def test_what_cannot_be_kept_is_dropped_silently() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    history.record({"number": 1})
    for entry in ({"x": object()}, {"x": float("nan")}, {(1, 2): 3}, {"x": "y" * history.MAX_BYTES}, loop):
        assert history.record(entry) is None  # type: ignore[arg-type]
    assert [entry.get("number") for entry in history.last(9)] == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the children only write, whatever threads there are
def test_processes_writing_together_do_not_mix_lines() -> None:
    writers = []
    for _ in range(3):
        writers.append(os.fork())
        if not writers[-1]:
            try:
                for number in range(100):
                    history.record({"number": number, "padding": "x" * 200})
            finally:
                os._exit(0)
    assert [os.waitpid(writer, 0)[1] for writer in writers] == [0, 0, 0]
    assert len([json.loads(line) for line in history.history_path().read_text().splitlines()]) == 300


def test_the_older_half_makes_room_and_its_step_times_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a quarter of the file."""
    monkeypatch.setattr(history, "MAX_BYTES", 4000)
    for kind in ("steps", "decision"):
        for number in range(200):
            history.record({"kind": kind, "number": number})
            assert history.history_path().stat().st_size <= 4000
    old = [json.loads(line)["number"] for line in history.lines_with('"kind":"steps"')]
    assert old == list(range(200 - len(old), 200))  # the newest of them, in their order
    assert 5 < len(old) < 20
    new = [entry["number"] for entry in history.last(300) if entry["kind"] == "decision"]
    assert new == list(range(200 - len(new), 200))
