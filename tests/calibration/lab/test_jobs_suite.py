"""The jobs of Lightning and the Trainer in the suite: small ones really run, and take the time of one epoch."""

from __future__ import annotations

import pytest

import placer
from placer.calibration.lab.suite import jobs
from placer.profile import load

CPU = load("amd-epyc-2-core")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def test_a_fit_of_lightning() -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    job, run = jobs.lightning(192, 128)
    assert [(part.name, part.count) for part in job.parts] == [("training", 3), ("validation", 2)]
    assert placer.explain(job, devices="cpu", profile=CPU).devices["cpu"].step_seconds > 0
    assert 0 < run() < 30


def test_a_run_of_the_trainer() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    job, run = jobs.trainer(40, 16)
    found = [(part.name, part.count) for part in job.parts]
    assert found == [("accumulation", 3), ("training", 2), ("evaluation", 1)]
    assert placer.explain(job, devices="cpu", profile=CPU).devices["cpu"].step_seconds > 0
    assert 0 < run() < 30
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
