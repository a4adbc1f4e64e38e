"""The history: what goes in comes out, it stays small, and it never fails its caller."""

from __future__ import annotations

import itertools
import json
import os
import threading
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
    lines = history.history_path().read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 300


def test_what_is_written_while_the_file_is_trimmed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 4000)
    monkeypatch.setattr(history, "PATIENCE", 60.0)
    replace, others = history.replace_file, list[threading.Thread]()

    def slow_replace(path: Path, data: bytes) -> None:
        others.append(threading.Thread(target=history.record, args=({"other": len(others)},)))
        others[-1].start()
        others[-1].join(0.3)  # long enough to write, where nothing keeps it from that
        replace(path, data)

    monkeypatch.setattr(history, "replace_file", slow_replace)
    for number in range(100):
        history.record({"number": number})
    for other in others:
        other.join()
    assert len(others) - 1 in [entry.get("other") for entry in history.last(1000)]


def test_a_lock_that_is_not_given_back_does_not_stop_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    history.record({"number": 1})
    monkeypatch.setattr(history, "PATIENCE", 0.0)
    with history._alone(history.history_path()):
        assert history.record({"number": 2}) == "another process does not end writing the history"
    history.record({"number": 3})
    assert [entry["number"] for entry in history.last(9)] == [1, 3]


def test_lines_are_found_by_what_they_contain() -> None:
    assert history.lines_with("here") == []
    for name in ("here", "there", "nowhere else", "where"):
        history.record({"name": name})
    found = [json.loads(line)["name"] for line in history.lines_with("here")]
    assert found == ["here", "there", "nowhere else", "where"]
    assert [json.loads(line)["name"] for line in history.lines_with("there")] == ["there"]
    assert history.lines_with("no such thing") == []
    with history.history_path().open("ab") as file:
        file.write(b"the last one, here, has no end")
    assert history.lines_with("here")[-1] == b"the last one, here, has no end"


def test_the_older_half_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that takes more than a quarter of the file is not kept."""
    monkeypatch.setattr(history, "MAX_BYTES", 4000)
    sizes = []
    for number in range(100):
        history.record({"number": number})
        sizes.append(history.history_path().stat().st_size)
    cuts = [after for before, after in itertools.pairwise(sizes) if after < before]
    assert cuts
    assert all(1900 <= size <= 2000 for size in cuts)
    assert history.record({"long": "x" * 900}) is None
    assert history.last()[0]["long"]
    history.record({"longer": "x" * 1000})
    assert "longer" not in history.last()[0]


def test_step_times_are_kept_in_a_quarter_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 4000)
    for number in range(200):
        history.record({"kind": "steps", "number": number})
        assert history.history_path().stat().st_size <= 4000
    for number in range(60):
        history.record({"kind": "decision", "number": number})
    old = [json.loads(line)["number"] for line in history.lines_with('"kind":"steps"')]
    assert old == list(range(200 - len(old), 200))  # the newest of them, in their order
    assert 5 < len(old) < 20


def test_why_nothing_can_be_kept_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert history.record({"number": 1}) is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "file" / "home"))
    assert history.record({"number": 1}) == "Not a directory"
