"""Predictions beside published steps: the tables, and the baselines beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from placer.calibration.published import PublishedStep, read_steps
from placer.calibration.validation import published_steps
from placer.calibration.validation.priced_step import PricedStep
from placer.calibration.validation.published_steps import price_steps, spread_out, tables, validate_published
from placer.tracing import Trace

needs_torchvision = pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")

STEP = PricedStep(
    source="timm", gpu="Tesla T4", network="timm:resnet50", family="vision-conv", mode="infer", dtype="float32",
    batch=64, measured=0.010, predicted=0.011, low=0.009, high=0.013, busy=0.0105, roofline=0.008, peak=0.005,
    provenance="published", held_out="",
)  # fmt: skip


def line(name: str, steps: list[PricedStep]) -> list[str]:
    (found,) = [text for text in tables(steps) if text.startswith(f"| {name} |")]
    return [part.strip() for part in found.strip("|").split("|")]


def test_a_line_has_the_error_the_bias_and_the_baselines() -> None:
    assert line("device-bound", [STEP]) == ["device-bound", "1", "10.0%", "10%", "1.10x", "100%", "20%", "50%", "-"]


def test_what_the_host_bounds_stands_apart() -> None:
    waiting = replace(STEP, busy=0.001)
    assert line("host-bound (host not known)", [STEP, waiting])[1] == "1"
    assert line("device-bound", [STEP, waiting])[1] == "1"


def test_what_no_fit_saw_stands_apart() -> None:
    steps = [STEP, replace(STEP, held_out="network"), replace(STEP, held_out="GPU", provenance="data sheet")]
    assert line("device-bound, networks held out", steps)[1] == "1"
    assert line("device-bound, GPUs held out", steps)[1] == "1"
    assert line("device-bound, data sheet only", steps)[1] == "1"


def test_the_nearest_gpu_is_scaled_by_the_ratio_of_the_peaks() -> None:
    twice = replace(STEP, gpu="Tesla V100-SXM2-16GB", measured=0.005, peak=0.0025)
    assert line("device-bound", [STEP, twice])[-1] == "0%"


def published(**changes: Any) -> PublishedStep:
    known: dict[str, Any] = {
        "source": "timm", "gpu": "Tesla V100-SXM2-16GB", "network": "NeuMF", "family": "recommender",
        "builder": "neumf", "arguments": {}, "inputs": [{"shape": [64], "dtype": "int64"}] * 2, "batch": 64,
        "dtype": "float32", "conv_tf32": False, "channels_last": False, "mode": "train", "optimizer": "adam",
        "loss": "sum", "gradients": "made anew", "data": "device", "torch": "", "seconds": 0.01,
        "compiled_seconds": None, "use": "fit",
    }  # fmt: skip
    return PublishedStep(**{**known, **changes})


def test_no_steps_are_tables_without_lines() -> None:
    assert next(tables([])).startswith("0 published steps")


def test_a_choice_takes_steps_of_every_gpu_in_turn() -> None:
    steps = [published(gpu=gpu, batch=batch) for gpu in ("V100", "A100") for batch in range(1, 9)]
    chosen = spread_out([*steps, published(gpu="T4")], 5)
    assert sorted(step.gpu for step in chosen) == ["A100", "A100", "T4", "V100", "V100"]
    assert len(spread_out(steps, 100)) == 16
    assert spread_out([], 10) == []


def test_a_step_is_priced_and_others_are_counted_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_step = published_steps.trace_step

    def without_timm(step: PublishedStep) -> Trace:
        if step.builder == "timm":
            raise ModuleNotFoundError("No module named 'timm'")
        return trace_step(step)

    monkeypatch.setattr(published_steps, "trace_step", without_timm)
    said: list[str] = []
    missing = published(builder="timm", arguments={"name": "resnet18"})
    (priced,) = price_steps([published(), missing, missing], None, said.append)
    assert (priced.gpu, priced.measured, priced.provenance) == ("Tesla V100-SXM2-16GB", 0.01, "published")
    assert 0.0 < priced.low < priced.predicted < priced.high
    assert 0.0 < priced.busy < 1.001 * priced.predicted
    assert 0.0 < priced.peak < priced.roofline
    assert said == ["2 steps left out: No module named 'timm'"]


@pytest.mark.parametrize(("use", "held_out"), [
    ("fit", ""), ("check", ""), ("held-out GPU", "GPU"), ("held-out network", "network"),
])  # fmt: skip
def test_the_table_says_what_is_held_out(use: str, held_out: str) -> None:
    (priced,) = price_steps([published(use=use)], None)
    assert priced.held_out == held_out


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, str]]:
    """What torch's switches for TF32 are while a step is priced."""
    seen: list[tuple[bool, str]] = []
    predict = published_steps.predict

    def seeing(*given: Any, **named: Any) -> Any:
        seen.append((torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()))
        return predict(*given, **named)

    monkeypatch.setattr(published_steps, "predict", seeing)
    return seen


def test_tf32_is_as_the_source_had_it_and_the_switches_are_put_back(switches: list[tuple[bool, str]]) -> None:
    before = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    steps = [published(), published(conv_tf32=True), published(dtype="tf32")]
    assert len(list(price_steps(steps, None))) == 3
    assert switches == [(False, "highest"), (True, "highest"), (True, "high")]
    assert before == (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision())


@needs_torchvision
def test_two_steps_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [s for s in read_steps() if s.network in ("torchvision:alexnet", "torchvision:resnet18")]
    monkeypatch.setattr(published_steps, "read_steps", lambda: known)
    written = tmp_path / "a" / "steps.jsonl"
    assert validate_published(steps=2, output=written) == 0
    found = [PricedStep(**json.loads(line)) for line in written.read_text(encoding="utf-8").splitlines()]
    assert len(found) == 2
    assert all(0.1 < step.predicted / step.measured < 10.0 for step in found)
    assert capsys.readouterr().out.startswith("2 published steps")


def test_a_step_that_is_there_for_its_compiled_time_is_not_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_steps, "read_steps", lambda: [published(use="compiled")])
    assert validate_published() == 1
