"""Predicted beside measured time of jobs that are really run."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

import placer
from placer.calibration.lab.suite import jobs as suite
from placer.calibration.lab.suite.jobs import RealJob
from placer.calibration.lab.validators import jobs
from placer.calibration.lab.validators.jobs import measure, validate_jobs
from placer.profile import load
from placer.workload import Job, Part

CPU = load("amd-epyc-2-core")
of_libraries = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def absent() -> RealJob:
    raise ImportError("the library is not installed")


def small() -> RealJob:
    took = iter((9.0, 1e-3, 3e-3, 2e-3))
    return Job([Part("step", nn.Linear(8, 4), (16, 8), count=3)]), lambda: next(took)


def test_the_median_counts_and_what_is_not_installed_is_said_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "JOBS", {"absent": absent, "small": small})
    page = tmp_path / "table.md"
    assert validate_jobs(CPU, page, ("absent", "small"), runs=3) == 0
    shown, said = capsys.readouterr()
    assert said.startswith("absent: the library is not installed\n")
    assert "3 × step" in shown
    assert "of 1 inside their 90 % interval" in shown
    assert page.read_text(encoding="utf-8").splitlines()[2] == "|---|---|--:|--:|--:|--:|"
    assert validate_jobs(CPU, names=("absent",)) == 1
    (row,) = measure(("small",), CPU, 3)
    assert (row.runs, row.measured) == ((1e-3, 3e-3, 2e-3), 2e-3)  # the first run warms up


@of_libraries
@pytest.mark.soak
def test_a_fit_of_lightning() -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    job, run = suite.lightning(192, 128)
    assert [(part.name, part.count) for part in job.parts] == [("training", 3), ("validation", 2)]
    assert placer.explain(job, devices="cpu", profile=CPU).devices["cpu"].step_seconds > 0
    assert 0 < run() < 30


@of_libraries
@pytest.mark.soak
def test_a_run_of_the_trainer() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    job, run = suite.trainer(40, 16)
    found = [(part.name, part.count) for part in job.parts]
    assert found == [("accumulation", 3), ("training", 2), ("evaluation", 1)]
    assert placer.explain(job, devices="cpu", profile=CPU).devices["cpu"].step_seconds > 0
    assert 0 < run() < 30
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
