"""Predictions beside published steps, problems and speed-ups of compiled steps on GPUs that nobody here has."""

from __future__ import annotations

import json
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
    SpeedUp,
    step_tables,
    validate_problems,
    validate_published,
)
from placer.calibration.validation.table import Table
from placer.errors import TraceError
from placer.tracing import Trace, trace
from placer.workload import make_workload

STEP = PricedStep(
    source="timm",
    gpu="Tesla T4",
    network="timm:resnet50",
    family="vision-conv",
    mode="infer",
    dtype="float32",
    batch=64,
    measured=0.010,
    predicted=0.011,
    low=0.009,
    high=0.013,
    busy=0.0105,
    roofline=0.008,
    peak=0.005,
    provenance="published",
    held_out="",
)


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


TWICE = replace(STEP, gpu="Tesla V100-SXM2-16GB", measured=0.005, peak=0.0025)
HELD_OUT = replace(STEP, held_out="network")


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
    found = [PricedStep(**json.loads(text)) for text in written.read_text(encoding="utf-8").splitlines()]
    assert [step.held_out for step in found] == ["", "network"]
    assert all(0.0 < step.low < step.predicted < step.high and step.peak < step.roofline for step in found)
    shown, said = capsys.readouterr()
    assert shown.startswith("2 published steps")
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = published(network="timm:made_up", seconds=0.002, compiled_seconds=0.001, use="compiled", mode="infer")
    steps = [published(), pair, replace(pair, network="timm:broken")]
    monkeypatch.setattr(validators, "read_steps", lambda: steps)
    monkeypatch.setattr(validators, "trace_step", traced)
    assert validate_published(compiled=True, output=tmp_path / "pairs.jsonl") == 0
    found = SpeedUp(**json.loads((tmp_path / "pairs.jsonl").read_text(encoding="utf-8")))
    assert (found.priced_as_compiled, found.published) == (True, 2.0)
    assert 1.1 < found.predicted < 6.0
    assert found.low < found.predicted_compiled < found.high
    shown, said = capsys.readouterr()
    assert said == "1 pairs left out: the forward failed\n"
    assert shown.startswith("1 published steps, eager and compiled")


def test_every_problem_has_a_price_near_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables are the record's; the bounds are those of docs/accuracy.md, with room."""
    output = tmp_path / "problems.jsonl"
    assert validate_problems(output=output) == 0
    rows = [json.loads(text) for text in output.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(list(read_problems()))
    long = [row for row in rows if row["measured"] >= LONG]
    shown = capsys.readouterr().out
    assert f"{len(long)} of them 1 ms and more" in shown
    assert all(f"| {heading} |" in shown for heading in ("Problems", "Level", "GPU", "Family", "recurrent:gru"))
    errors = sorted(abs(row["predicted"] / row["measured"] - 1.0) for row in long)
    assert errors[len(errors) // 2] < 0.2
    assert all(0.0 < row["low"] < row["predicted"] < row["high"] for row in rows)
    held = [row for row in long if row["held_out"]]
    assert {row["held_out"] for row in held} == {"problem", "GPU"}
    assert sum(row["low"] <= row["measured"] <= row["high"] for row in held) >= 0.8 * len(held)
