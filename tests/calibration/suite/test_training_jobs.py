"""The jobs of Lightning and the Trainer in the suite: small ones really run, and take the time of one epoch."""

from __future__ import annotations

import pytest

import placer
from placer.profile import load

CPU = load("amd-epyc-2-core")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def test_a_fit_of_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    from placer.calibration.suite.jobs import lightning as module

    monkeypatch.setattr(module, "TRAINING_ROWS", 192)
    monkeypatch.setattr(module, "VALIDATION_ROWS", 128)
    job, run = module.build()
    assert [(part.name, part.count) for part in job.parts] == [("training", 3), ("validation", 2)]
    assert placer.explain(job, devices="cpu", profile=CPU).devices["cpu"].step_seconds > 0
    assert 0 < run() < 30


def test_a_run_of_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    from placer.calibration.suite.jobs import trainer as module

    monkeypatch.setattr(module, "TRAINING_ROWS", 40)
    monkeypatch.setattr(module, "EVALUATION_ROWS", 16)
    job, run = module.build()
    found = [(part.name, part.count) for part in job.parts]
    assert found == [("accumulation", 3), ("training", 2), ("evaluation", 1)]
    assert placer.explain(job, devices="cpu", profile=CPU).devices["cpu"].step_seconds > 0
    assert 0 < run() < 30
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
