"""The history: what goes in comes out, it stays small, and it never fails its caller."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from placer.decision import history


def test_entries_come_back_newest_last() -> None:
    assert history.last() == []
    for number in range(5):
        history.record({"number": number})
    assert [entry["number"] for entry in history.last(3)] == [2, 3, 4]
    assert history.last()[0]["number"] == 4
    assert "time" in history.last()[0]
    assert len(history.last(99)) == 5
    assert history.last(0) == []


def test_it_stays_bounded_and_keeps_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 4000)
    for number in range(300):
        history.record({"number": number})
        assert history.history_path().stat().st_size <= 4000
    kept = [entry["number"] for entry in history.last(300)]
    assert kept == list(range(300 - len(kept), 300))
    assert len(kept) > 10


def test_damaged_lines_are_skipped() -> None:
    history.record({"number": 1})
    with history.history_path().open("ab") as file:
        file.write(b'{"number": 2\n\xff\xfe\n[]\n' + b"[" * 100_000 + b"\n")
    history.record({"number": 3})
    assert [entry["number"] for entry in history.last(9)] == [1, 3]


@pytest.mark.parametrize("entry", [{"x": object()}, {"x": float("nan")}, {(1, 2): 3}, {"x": "y" * history.MAX_BYTES}])
def test_what_cannot_be_kept_is_dropped_silently(entry: dict[Any, Any]) -> None:
    history.record({"number": 1})
    history.record(entry)
    loop: dict[str, Any] = {}
    loop["self"] = loop
    history.record(loop)
    assert [kept.get("number") for kept in history.last(9)] == [1]


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("PLACER_HOME", str(blocked / "home"))
    history.record({"number": 1})
    assert history.last() == []


def test_processes_writing_together_do_not_mix_lines() -> None:
    code = (
        "from placer.decision import history\n"
        "for n in range(100): history.record({'number': n, 'padding': 'x' * 200})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [writer.wait(100) for writer in writers] == [0, 0, 0]
    lines = history.history_path().read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 300
