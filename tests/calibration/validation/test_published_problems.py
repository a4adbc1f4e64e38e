"""Published problems beside their prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placer.calibration.published import read_problems
from placer.calibration.validation.published_problems import price_problem, tables, validate_problems


def test_every_problem_has_a_price_near_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables are the record's; the bounds are those of docs/accuracy.md, with room."""
    output = tmp_path / "problems.jsonl"
    assert validate_problems(output=output) == 0
    shown = capsys.readouterr().out
    rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(list(read_problems()))
    long = [row for row in rows if row["measured"] >= 1e-3]
    assert f"{len(long)} of them 1 ms and more" in shown
    errors = sorted(abs(row["predicted"] / row["measured"] - 1.0) for row in long)
    assert errors[len(errors) // 2] < 0.2
    assert all(0.0 < row["low"] < row["predicted"] < row["high"] for row in rows)
    held = [row for row in long if row["held_out"]]
    assert {row["held_out"] for row in held} == {"problem", "GPU"}
    assert sum(row["low"] <= row["measured"] <= row["high"] for row in held) >= 0.8 * len(held)


def test_tables_tell_what_was_held_out_and_families_apart() -> None:
    some = [p for p in read_problems() if p.problem in ("level1/40_LayerNorm", "level3/39_GRU")]
    text = "\n".join(tables([price_problem(problem) for problem in some]))
    for heading in ("| Problems |", "| Level |", "| GPU |", "| Family |"):
        assert heading in text
    assert "| normalization:native_layer_norm |" in text
    assert "| recurrent:gru |" in text
