"""Published problems beside their prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placer.calibration.published import read_problems
from placer.calibration.validation.published_problems import price_problem, tables, validate_problems
from placer.pricing import gpu_profile, predict
from placer.tracing import Trace


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


def test_a_step_of_recurrent_layers_is_near_its_time_on_every_gpu() -> None:
    recurrent = [p for p in read_problems() if p.problem in ("level3/35_LTSM", "level3/39_GRU")]
    assert len({p.gpu for p in recurrent}) == 6
    for problem in recurrent:
        assert 0.6 < price_problem(problem).predicted / problem.seconds < 1.4, problem.gpu


def test_a_problem_is_scored_as_the_step_that_explain_shows() -> None:
    """Not as its kernels alone: where the host needs longer, the host counts."""
    problem = next(p for p in read_problems() if p.problem == "level1/100_HingeLoss")
    trace = Trace(calls=problem.calls, mode="infer", parameters=(), buffers=(), batch=(), outputs=())
    step = predict(trace, gpu_profile(problem.gpu), devices=["cuda"], data="device")["cuda"]
    assert sum(step.priced.host_seconds) > step.components["compute"]
    waits = step.components["copy"] + step.components["sync"]
    assert price_problem(problem).predicted == step.step_seconds - waits > step.components["compute"]


def test_tables_tell_what_was_held_out_and_families_apart() -> None:
    some = [p for p in read_problems() if p.problem in ("level1/40_LayerNorm", "level3/39_GRU")]
    text = "\n".join(tables([price_problem(problem) for problem in some]))
    for heading in ("| Problems |", "| Level |", "| GPU |", "| Family |"):
        assert heading in text
    assert "| normalization:native_layer_norm |" in text
    assert "| recurrent:gru |" in text
