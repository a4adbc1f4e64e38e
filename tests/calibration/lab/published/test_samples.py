"""Samples: what of a published time is the device's, what runs in which precision, and what is in no fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from placer.calibration.lab.published import samples
from placer.calibration.lab.published.networks import identity
from placer.calibration.lab.published.samples import (
    Sample,
    count,
    counted,
    op_samples,
    rows_counted,
)
from placer.calibration.lab.published.table import PublishedOp, PublishedStep
from placer.pricing import describe_step
from placer.tracing import OpCall, Trace, trace
from placer.workload import make_workload

from .synthetic import product, published_step, row

VGG = published_step("torchvision", 8, 3, 224, 224, arguments={"name": "vgg16"})


def sampled_op(call: OpCall, op: str = "mm", **changes: Any) -> Sample:
    known: dict[str, Any] = {
        "source": "made up", "gpu": "Tesla T4", "op": op, "phase": "fwd", "part": "", "dtype": "float32",
        "calls": (call,), "seconds": 1e-3, "host_seconds": None, "use": "fit",
    }  # fmt: skip
    (sample,) = op_samples([PublishedOp(**{**known, **changes})])
    return sample


def test_an_operator_is_a_sample_of_its_rows_and_the_hosts_share_is_no_time_of_the_device() -> None:
    call = product(512, 512, 512)
    sample = sampled_op(call)
    assert (sample.gpu, sample.is_step, sample.use) == ("Tesla T4", False, "fit")
    assert (sample.rows, sample.group) == (((row(call), "float32", 1),), ("made up", "mm", "fwd", "float32"))
    assert (sample.seconds, sample.device_seconds) == (1e-3, 1e-3)
    assert sampled_op(call, host_seconds=2e-4).device_seconds == pytest.approx(8e-4)
    assert sampled_op(call, use="held out").use == "held out"


def traced(mode: str = "train") -> Trace:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)), nn.ReLU(), nn.ReLU())
    return trace(make_workload(model, (4, 8), mode=mode))


def test_nothing_of_a_step_is_lost() -> None:
    found = count(traced("infer"))
    assert {row.label: n for row, n in rows_counted(found)} == {"matmul:addmm": 5, "elementwise:relu": 2}
    assert (found.launching, found.batch_bytes) == (7, 4 * 4 * 8)
    step = traced()
    works = [work for work in describe_step(step) if work.family != "view"]
    training = count(step)
    rows = rows_counted(training)
    assert sum(n for _, n in rows) == len(works)
    assert sum(n * row.columns[1] for row, n in rows) == pytest.approx(sum(work.bytes for work in works), rel=0.5)
    assert training.launching > found.launching + 2 * 5


def test_what_was_counted_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[PublishedStep] = []

    def trace_step(step: PublishedStep) -> Trace:
        asked.append(step)
        return traced()

    monkeypatch.setattr(samples, "trace_step", trace_step)
    cache = tmp_path / "a" / "cache"
    first = counted(VGG, cache)
    (file,) = cache.iterdir()
    assert file.name == f"{identity(VGG)}.json.gz"
    content = file.read_bytes()
    assert counted(VGG, cache) == counted(replace(VGG, gpu="Tesla T4", seconds=9.0), cache) == first
    assert len(asked) == 1
    assert counted(replace(VGG, mode="train"), cache) == first
    assert len(asked) == 2
    file.unlink()
    counted(VGG, cache)
    assert file.read_bytes() == content
