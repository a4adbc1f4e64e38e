"""A study whose trials each ask placer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from placer import tracing
from placer.integrations import optuna as integration

optuna = pytest.importorskip("optuna", reason="optuna is not installed")
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def studied(placed: bool) -> Any:
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: Any) -> float:
        torch.manual_seed(0)
        units = trial.suggest_categorical("units", [4, 8])
        model = nn.Sequential(nn.Linear(3, units), nn.ReLU(), nn.Linear(units, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=trial.suggest_float("lr", 1e-3, 1e-1, log=True))
        if placed:
            placement = integration.choose(trial, model, (16, 3), optimizer=optimizer, devices="cpu")
            assert placement.device == "cpu"
        x = torch.randn(16, 3)
        for _ in range(3):
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=8)
    return study


def test_trials_end_with_the_same_values_and_say_where_they_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[object] = []
    real = tracing.trace
    monkeypatch.setattr(tracing, "trace", lambda workload: (traced.append(1), real(workload))[1])
    without, study = studied(placed=False), studied(placed=True)
    assert [t.value for t in study.trials] == [t.value for t in without.trials]
    assert len({t.params["units"] for t in study.trials}) == 2
    assert len(traced) == 8  # every trial is a question of its own
    for trial in study.trials:
        assert trial.user_attrs["placer_device"] == "cpu"
        assert trial.user_attrs["placer_confidence"] == 1.0
        assert trial.user_attrs["placer_step_seconds"] > 0


def test_a_fallback_is_recorded_too() -> None:
    trial = optuna.create_study().ask()
    with pytest.warns(UserWarning, match="without a prediction"):
        integration.choose(trial, nn.Linear(2, 2), (1, 3), devices="cpu")  # not the width that the layer takes
    assert "by convention" in trial.user_attrs["placer_reason"]
    assert "placer_step_seconds" not in trial.user_attrs
