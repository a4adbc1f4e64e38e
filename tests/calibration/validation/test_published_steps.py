"""Predictions beside published steps: the tables, and the baselines beside them."""

from __future__ import annotations

from dataclasses import replace

from placer.calibration.validation.published_steps import PricedStep, tables

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
