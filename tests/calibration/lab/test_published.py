"""Predictions beside published steps, problems and speed-ups of compiled steps on GPUs that nobody here has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from placer.calibration.lab.published import PublishedStep, read_problems
from placer.calibration.lab.validators import published as validators
from placer.calibration.lab.validators.published import (
    LONG,
    PricedStep,
    price_problem,
    price_step,
    speed_up,
    step_tables,
    validate_problems,
    validate_published,
)
from placer.calibration.validation.table import Table
from placer.errors import TraceError
from placer.tracing import Trace, trace
from placer.workload import make_workload


def published(**changes: Any) -> PublishedStep:
    known: dict[str, Any] = {
        "source": "timm", "gpu": "Tesla V100-SXM2-16GB", "network": "NeuMF", "family": "recommender",
        "builder": "neumf", "arguments": {}, "inputs": [{"shape": [64], "dtype": "int64"}] * 2, "batch": 64,
        "dtype": "float32", "conv_tf32": False, "channels_last": False, "mode": "train", "optimizer": "adam",
        "loss": "sum", "gradients": "made anew", "data": "device", "torch": "", "seconds": 0.01,
        "compiled_seconds": None, "use": "fit",
    }  # fmt: skip
    return PublishedStep(**{**known, **changes})


def line(name: str, items: Iterator[Table | str]) -> tuple[str, ...]:
    """The first line of a table of this name, without the name."""
    lines = (row for item in items if isinstance(item, Table) for row in item.rows)
    return next(cells[1:] for cells in lines if cells[0] == name)


STEP = PricedStep(0.010, 0.011, 0.009, 0.013, published(gpu="Tesla T4"), 0.0105, 0.008, 0.005, "published")
TWICE = replace(STEP, step=published(), measured=0.005, peak=0.0025)
HELD_OUT = replace(STEP, step=published(gpu="Tesla T4", use="held-out network"))
WAITING = replace(STEP, busy=0.001)
ALONE = ("1", "10.0%", "10%", "1.10x", "100%", "20%", "50%", "-")


@pytest.mark.parametrize(
    ("steps", "name", "shown"),
    [
        ([STEP], "device-bound", ALONE),
        (
            [STEP, TWICE],
            "device-bound",
            ("2", "65.0%", "109%", "1.65x", "50%", "40%", "50%", "0%"),
        ),  # scaled from the other GPU
        ([STEP, HELD_OUT], "device-bound, networks held out", ALONE),
        ([STEP, WAITING], "host-bound (host not known)", ALONE),
    ],
)
def test_a_line_of_the_steps_has_errors_and_baselines(
    steps: list[PricedStep], name: str, shown: tuple[str, ...]
) -> None:
    assert line(name, step_tables(steps)) == shown


def test_steps_are_priced_and_recorded_and_those_that_cannot_be_built_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = published(builder="timm", arguments={"name": "no such network"})
    steps = [published(), published(use="held-out network"), missing, missing, published(use="compiled")]
    monkeypatch.setattr(validators, "read_steps", lambda: steps)
    written = tmp_path / "a" / "steps.jsonl"
    assert validate_published(output=written) == 0
    shown, said = capsys.readouterr()
    assert shown.startswith("2 published steps")
    assert written.read_text(encoding="utf-8") == shown
    priced = price_step(steps[0], None)
    assert 0.0 < priced.low < priced.predicted < priced.high
    assert priced.peak < priced.roofline
    assert said.startswith("2 steps left out: ")
    monkeypatch.setattr(validators, "read_steps", lambda: steps[4:])
    assert validate_published() == 1


def traced(step: PublishedStep, *, compiled: bool) -> Trace:
    if step.network == "timm:broken":
        raise TraceError("the forward failed: of its own accord")
    layers = [nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.SiLU()]
    model = torch.compile(nn.Sequential(*layers).eval())
    return replace(trace(make_workload(model, (64, 3, 128, 128), mode="infer")), outputs=())


def test_a_compiled_pair_is_priced_both_ways(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = published(network="timm:made_up", seconds=0.002, compiled_seconds=0.001, use="compiled", mode="infer")
    steps = [published(), pair, replace(pair, network="timm:broken")]
    monkeypatch.setattr(validators, "read_steps", lambda: steps)
    monkeypatch.setattr(validators, "trace_step", traced)
    assert validate_published(compiled=True) == 0
    found = speed_up(pair, None)
    assert found.speed_up == 2.0
    assert 1.1 < found.predicted_speed_up < 6.0
    assert found.low < found.predicted < found.high
    shown, said = capsys.readouterr()
    assert said == "1 pairs left out: the forward failed\n"
    assert shown.startswith("1 published steps, eager and compiled")


def test_every_problem_has_a_price_near_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The tables are the record's; the bounds are those of docs/accuracy.md, with room."""
    assert validate_problems() == 0
    rows = [price_problem(problem) for problem in read_problems()]
    long = [row for row in rows if row.measured >= LONG]
    shown = capsys.readouterr().out
    assert f"{len(long)} of them 1 ms and more" in shown
    assert all(f"| {heading} |" in shown for heading in ("Problems", "Level", "GPU", "Family", "recurrent:gru"))
    errors = sorted(abs(row.predicted / row.measured - 1.0) for row in long)
    assert errors[len(errors) // 2] < 0.2
    assert all(0.0 < row.low < row.predicted < row.high for row in rows)
    held = [row for row in long if row.problem.use.startswith("held-out")]
    assert {row.problem.use for row in held} == {"held-out network", "held-out GPU"}
    assert sum(row.low <= row.measured <= row.high for row in held) >= 0.8 * len(held)
