"""Predicted beside measured time of jobs that are really run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from placer.calibration.suite.jobs import RealJob
from placer.calibration.validation import jobs
from placer.calibration.validation.jobs import measure, summary, validate_jobs
from placer.profile import load
from placer.workload import Job, Part

CPU = load("amd-epyc-2-core")


def build(name: str) -> RealJob:
    if name == "absent":
        raise ImportError("the library is not installed")
    took = iter((9.0, 1e-3, 3e-3, 2e-3))
    return RealJob(name, Job([Part("step", nn.Linear(8, 4), (16, 8), count=3)]), lambda: next(took))


def test_the_median_counts_and_what_is_not_installed_is_said_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "build", build)
    said: list[str] = []
    page = tmp_path / "table.md"
    assert validate_jobs(profile=CPU, names=("absent", "small"), runs=3, say=said.append, output=page) == 0
    assert said[0] == "absent: the library is not installed"
    assert "3 × step" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8").splitlines()[1] == "|---|---|--:|--:|--:|--:|"
    assert validate_jobs(profile=CPU, names=("absent",)) == 1
    (row,) = measure(("small",), CPU, 3)
    assert (row.runs, row.measured) == ((1e-3, 3e-3, 2e-3), 2e-3)  # the first run warms up
    assert list(summary([row]))[1] == f"{int(row.inside)} of 1 inside their 90 % interval"


def test_a_real_library_is_predicted_and_run() -> None:
    pytest.importorskip("skorch")
    torch.manual_seed(0)
    (row,) = measure(("skorch",), CPU, 1)
    assert row.measured > 0.0
    assert {part.name for part in row.job.job.parts} >= {"training"}
