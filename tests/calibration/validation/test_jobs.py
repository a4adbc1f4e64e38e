"""Predicted beside measured time of jobs that are really run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from placer.calibration.suite.jobs import RealJob
from placer.calibration.validation import jobs as module
from placer.calibration.validation.jobs import COLUMNS, JobRow, measure, summary, validate_jobs
from placer.profile import load
from placer.workload import Job, Part

CPU = load("amd-epyc-2-core")


def real(name: str = "small") -> RealJob:
    net = nn.Linear(8, 4)
    job = Job([Part("step", net, (16, 8), count=3)])
    took = iter((9.0, 1e-3, 3e-3, 2e-3))
    return RealJob(name, job, lambda: next(took))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(name: str) -> RealJob:
        if name == "absent":
            raise ImportError("the library is not installed")
        return real(name)

    monkeypatch.setattr(module, "build", build)


def test_the_median_counts_and_the_first_run_does_not(built: None) -> None:
    (row,) = measure(("small",), CPU, 3)
    assert row.runs == (1e-3, 3e-3, 2e-3)
    assert row.measured == 2e-3
    assert row.ratio == pytest.approx(row.predicted.step_seconds / 2e-3)


def test_what_is_not_installed_is_said_and_left_out(
    built: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    page = tmp_path / "table.md"
    assert validate_jobs(profile=CPU, names=("absent", "small"), runs=3, say=said.append, output=page) == 0
    assert said[0] == "absent: the library is not installed"
    assert "3 × step" in capsys.readouterr().out
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [f"| {' | '.join(COLUMNS)} |", "|---|---|--:|--:|--:|--:|"]
    assert len(lines) == 6
    assert validate_jobs(profile=CPU, names=("absent",)) == 1


def test_the_summary_counts_intervals_and_factors(built: None) -> None:
    (row,) = measure(("small",), CPU, 3)
    low, high = row.predicted.low, row.predicted.high
    inside = JobRow(row.job, row.predicted, ((low * high) ** 0.5,))
    outside = JobRow(row.job, row.predicted, (row.predicted.step_seconds * 4,))
    assert list(summary([inside, outside]))[1] == "1 of 2 inside their 90 % interval"
    assert "4.00 at the most" in next(summary([outside]))
    assert list(summary([])) == []


def test_a_real_library_is_predicted_and_run() -> None:
    pytest.importorskip("skorch")
    torch.manual_seed(0)
    (row,) = measure(("skorch",), CPU, 1)
    assert row.measured > 0.0
    assert {part.name for part in row.job.job.parts} >= {"training"}
