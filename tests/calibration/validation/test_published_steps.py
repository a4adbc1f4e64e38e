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
from placer.errors import PlacerError

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "gpu-data"
shared = pytest.mark.skipif(not (FOLDER / "steps.csv.gz").is_file(), reason="no published measurements in ../shared")
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
        "source": "lcy-seso/Carrot", "gpu": "V100 16GB", "host_cpu": None, "torch_version": None,
        "network": "3-layer LSTM LM, nn.LSTM (cuDNN)", "family": "recurrent", "batch": 8, "input": (8, 5), "tokens": (),
        "dtype": "float32", "conv_tf32": False, "channels_last": False, "mode": "train", "part": "forward",
        "attention": "", "optimizer": "adam", "foreach": True, "copies": "device", "zero_grad": True,
        "keeps_gradients": True, "benchmark": False, "synchronised": False, "seconds": 0.01,
    }  # fmt: skip
    return PublishedStep(**{**known, **changes})


def test_no_steps_are_tables_without_lines() -> None:
    assert next(tables([])).startswith("0 published steps")


def test_a_choice_takes_steps_of_every_gpu_in_turn() -> None:
    steps = [published(gpu=gpu, batch=batch) for gpu in ("V100 16GB", "A100") for batch in range(1, 9)]
    chosen = spread_out([*steps, published(gpu="T4")], 5)
    assert sorted(step.gpu for step in chosen) == ["A100", "A100", "T4", "V100 16GB", "V100 16GB"]
    assert len(spread_out(steps, 100)) == 16
    assert spread_out([], 10) == []


def test_a_step_is_priced_and_others_are_counted_by_reason() -> None:
    said: list[str] = []
    steps = [published(), published(gpu="Voodoo 2"), published(network="tiny MLP", family="other")]
    (priced,) = price_steps(steps, None, said.append)
    assert (priced.gpu, priced.measured, priced.provenance) == ("Tesla V100-SXM2-16GB", 0.01, "published")
    assert 0.0 < priced.low < priced.predicted < priced.high
    assert 0.0 < priced.busy <= priced.predicted
    assert 0.0 < priced.peak < priced.roofline
    assert len(said) == 2
    assert all(text.startswith("1 steps left out: ") for text in said)


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
    steps = [published(gpu="A100"), published(gpu="A100", conv_tf32=True), published(gpu="A100", dtype="tf32")]
    assert len(list(price_steps(steps, None))) == 3
    assert switches == [(False, "highest"), (True, "highest"), (True, "high")]
    assert before == (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision())


def test_a_folder_without_steps_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlacerError, match=r"give the folder that holds steps\.csv\.gz and e2e_neusight\.csv"):
        validate_published(tmp_path)


@shared
@needs_torchvision
def test_two_steps_of_the_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [s for s in read_steps(FOLDER)[0] if s.network in ("torchvision:alexnet", "torchvision:resnet18")]
    monkeypatch.setattr(published_steps, "read_steps", lambda folder: (known, []))
    written = tmp_path / "a" / "steps.jsonl"
    assert validate_published(FOLDER, steps=2, output=written) == 0
    found = [PricedStep(**json.loads(line)) for line in written.read_text(encoding="utf-8").splitlines()]
    assert len(found) == 2
    assert all(0.1 < step.predicted / step.measured < 10.0 for step in found)
    assert capsys.readouterr().out.startswith("2 published steps")
