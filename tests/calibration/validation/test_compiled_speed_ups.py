"""Predicted beside published speed-ups of compiled steps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from placer.calibration.published import PublishedStep
from placer.calibration.validation import compiled_speed_ups
from placer.calibration.validation.compiled_speed_ups import SpeedUp, looked_at, speed_ups, tables, validate_compiled
from placer.errors import TraceError
from placer.tracing import Trace, trace
from placer.workload import make_workload

FOUND = SpeedUp(
    gpu="RTX 4090", torch="2.9.1", network="timm:resnet50", family="vision-conv", mode="infer", batch=256,
    looked_at=False, eager=0.060, compiled=0.040, predicted_eager=0.060, predicted_compiled=0.050, low=0.03, high=0.06,
    priced_as_compiled=True,
)  # fmt: skip
STEP = PublishedStep(
    source="timm", gpu="NVIDIA GeForce RTX 4090", network="timm:made_up", family="vision-conv", builder="timm",
    arguments={}, inputs=[[64, 3, 32, 32]], batch=64, dtype="float32", conv_tf32=False, channels_last=False,
    mode="infer", optimizer="", loss="", gradients="", data="device", torch="2.9.1", seconds=0.002,
    compiled_seconds=0.001, use="compiled",
)  # fmt: skip


def traced(step: PublishedStep) -> Trace:
    if step.network == "timm:broken":
        raise TraceError("the forward failed: of its own accord")
    layers = [nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.SiLU()]
    model = torch.compile(nn.Sequential(*layers).eval())
    return replace(trace(make_workload(model, (64, 3, 128, 128), mode="infer")), outputs=())


def line(name: str, found: list[SpeedUp]) -> list[str]:
    text = next(text for text in tables(found) if text.startswith(f"| {name} |"))
    return [part.strip() for part in text.strip("|").split("|")]


def test_a_line_has_both_speed_ups_and_their_ratio() -> None:
    half = line("not looked at", [FOUND])
    assert half == ["not looked at", "1", "1.50x", "1.20x", "0.80", "0.80–0.80", "100%", "25.0%", "100%"]
    missed = replace(FOUND, predicted_compiled=0.055, high=0.039)
    assert line("RTX 4090", [missed])[6:] == ["0%", "37.5%", "0%"]


def test_the_halves_stand_apart() -> None:
    found = [FOUND, replace(FOUND, looked_at=True), replace(FOUND, looked_at=True, gpu="A100 PCIe 40GB")]
    assert line("looked at", found)[1] == "2"
    assert line("not looked at", found)[1] == "1"
    assert not any(text.startswith("| A100") for text in tables(found))


def test_a_pair_is_priced_both_ways_and_what_cannot_be_traced_is_counted() -> None:
    said: list[str] = []
    broken = replace(STEP, network="timm:broken")
    (found,) = speed_ups([STEP, broken], None, said.append, traced)
    assert found.priced_as_compiled
    assert found.published == pytest.approx(2.0)
    assert 1.1 < found.predicted < 6.0
    assert found.low < found.predicted_compiled < found.high
    assert said == ["1 pairs left out: the forward failed"]


def test_the_halves_share_no_network_whatever_its_source_and_weights() -> None:
    names = ["resnet18", "resnet34", "vgg11", "vgg13", "vgg16"]
    assert {looked_at(f"timm:{name}") for name in names} == {True, False}
    assert all(looked_at(f"timm:{name}.a1_in1k") == looked_at(f"torchvision:{name}") for name in names)


def test_the_record_and_the_tables_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [replace(STEP, compiled_seconds=None, use="fit"), STEP]
    monkeypatch.setattr(compiled_speed_ups, "read_steps", lambda: steps)
    monkeypatch.setattr(compiled_speed_ups, "trace_step", lambda step, *, compiled: traced(step))
    written = tmp_path / "a" / "pairs.jsonl"
    assert validate_compiled(output=written) == 0
    (found,) = [SpeedUp(**json.loads(text)) for text in written.read_text(encoding="utf-8").splitlines()]
    assert (found.network, found.compiled) == ("timm:made_up", 0.001)
    assert capsys.readouterr().out.startswith("1 published steps, eager and compiled")
    monkeypatch.setattr(compiled_speed_ups, "read_steps", lambda: steps[:1])
    assert validate_compiled() == 1
