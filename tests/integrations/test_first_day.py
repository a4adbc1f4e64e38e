"""Integrations that run the framework's own code answer on a machine that was never calibrated."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import placer

ROWS = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)


def _skorch() -> placer.JobPlacement:
    from placer.integrations.skorch import job

    net = importlib.import_module("skorch").NeuralNetRegressor(nn.Linear, module__in_features=4, module__out_features=1)
    return placer.choose(job(net, ROWS, ROWS[:, :1]), move=False)


def _stable_baselines3() -> placer.JobPlacement:
    from placer.integrations.stable_baselines3 import job

    return placer.choose(job(importlib.import_module("stable_baselines3").A2C, "MlpPolicy", "CartPole-v1"), move=False)


@pytest.mark.filterwarnings("ignore::placer.PlacerWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("ask", [_skorch, _stable_baselines3])
def test_an_answer_without_a_calibration(ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "home"))
    name = ask.__name__[1:]
    pytest.importorskip(name, reason=f"{name} is not installed")
    answer = ask()
    assert answer.confidence is not None
    assert answer.provenance == "published"
