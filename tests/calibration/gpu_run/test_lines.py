from __future__ import annotations

from pathlib import Path

from placer.calibration.gpu_run.lines import Lines, read


def test_what_has_an_answer_is_known_to_the_next_run_and_what_failed_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rates.jsonl"
    lines = Lines(path)
    lines.add({"what": "mm", "n": 8}, seconds=1.0)
    lines.fail({"what": "mm", "n": 16}, "no room")
    again = Lines(path)
    assert {"n": 8, "what": "mm"} in again
    assert {"what": "mm", "n": 16} not in again
    assert [line["of"]["n"] for line in read(path)] == [8, 16]


def test_a_line_that_was_cut_short_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "rates.jsonl"
    Lines(path).add({"n": 1}, seconds=1.0)
    with path.open("a") as file:
        file.write('{"of": {"n": 2}, "sec\n[1]\n')
    Lines(path).add({"n": 3}, seconds=3.0)
    assert [line["of"]["n"] for line in read(path)] == [1, 3]
