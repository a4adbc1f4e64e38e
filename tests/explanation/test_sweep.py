from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from explained import table_of

from placer.decision import TIME, Objective
from placer.explanation import Sweep
from placer.explanation.sweep import turns
from placer.pricing.prediction import Prediction

Make = Callable[..., Prediction]


def swept(make: Make, sizes: tuple[int, ...], gpu: float = 1e-3, objective: Objective = TIME) -> Sweep:
    """The CPU takes time in proportion to the batch, the accelerator always the same."""
    rows = {}
    for size in sizes:
        found = {"cpu": make("cpu", size * 1e-4), "cuda": make("cuda", gpu, provenance="data sheet")}
        rows[size] = table_of(found, objective=objective)
    return Sweep("batch", rows)


@pytest.fixture
def sweep(make_prediction: Make) -> Sweep:
    return swept(make_prediction, (1, 4, 16, 64))


def test_the_choice_turns_where_the_curves_meet(sweep: Sweep) -> None:
    assert sweep.crossovers() == [(1, "cpu"), (16, "cuda")]
    assert sweep.turn(16) == pytest.approx(10.0, rel=1e-6)
    assert sweep.turn(1) is None
    assert turns(sweep) == "cpu first; cuda from batch 16 on."


def test_a_tie_is_told_in_the_table_the_sentence_and_json(make_prediction: Make) -> None:
    sweep = swept(make_prediction, (8, 10, 16), 1.02e-3)
    assert turns(sweep) == "cpu first; about the same from batch 10 on; cuda from batch 16 on."
    text = sweep.to_text(width=100)
    assert "→ about the same" in text
    assert "→ cuda" in text
    assert [row["verdict"] for row in json.loads(sweep.to_json())["rows"]] == ["cpu", "about the same", "cuda"]
    assert turns(Sweep("batch", {10: sweep.rows[10]})) == "about the same at every batch size."


def test_sizes_that_fail_are_named(sweep: Sweep) -> None:
    one = {size: table_of({"cpu": row.parts[0].predictions["cpu"]}) for size, row in sweep.rows.items()}
    text = Sweep("batch", one, {2: "does not divide"}).to_text(width=80)
    assert "batch 2: does not divide" in text


def test_over_steps_the_one_time_cost_counts(make_prediction: Make) -> None:
    found = {"cpu": make_prediction("cpu", 2e-3), "cuda": make_prediction("cuda", 1e-3, one_time_seconds=1.0)}
    table = table_of(found)
    sweep = Sweep("steps", {steps: table.repeated(steps) for steps in (1, 512, 2048)})
    assert [decision.device for decision in sweep.decisions.values()] == ["cpu", "cpu", "cuda"]
    assert sweep.times("cuda")[0] == (pytest.approx(1.001), pytest.approx(1 + 1e-3 / 1.2), pytest.approx(1.0012))
    assert 512 < (sweep.turn(2048) or 0.0) < 2048
    assert turns(sweep) == "cpu first; cuda from 2,048 steps on."
    values = json.loads(sweep.to_json())
    assert (values["sweep"], values["crossovers"][-1]) == ("steps", {"steps": 2048, "choice": "cuda"})
    assert [row["steps"] for row in values["rows"]] == [1, 512, 2048]
