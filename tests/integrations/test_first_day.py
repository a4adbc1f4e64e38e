"""Every integration answers on a machine that was never calibrated."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

ROWS = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)


def _lightning(choose: Any) -> Any:
    pytorch = importlib.import_module("lightning.pytorch")

    class Module(pytorch.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return choose(Module(), torch.tensor(ROWS))


def _transformers(choose: Any) -> Any:
    library = importlib.import_module("transformers")
    config = library.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    ids = torch.zeros(2, 8, dtype=torch.long)
    model = library.BertForSequenceClassification(config)
    return choose(model, {"input_ids": ids, "labels": torch.zeros(2, dtype=torch.long)})


def _skorch(choose: Any) -> Any:
    net = importlib.import_module("skorch").NeuralNetRegressor(nn.Linear, module__in_features=4, module__out_features=1)
    return choose(net, ROWS, ROWS[:, :1])


def _pytorch_tabnet(choose: Any) -> Any:
    pytest.importorskip("pandas", reason="pandas, which pytorch-tabnet imports, is not installed")
    estimator = importlib.import_module("pytorch_tabnet.tab_model").TabNetRegressor(verbose=0)
    return choose(estimator, ROWS, ROWS[:, :1], batch_size=32, virtual_batch_size=16)


def _stable_baselines3(choose: Any) -> Any:
    return choose(importlib.import_module("stable_baselines3").A2C, "MlpPolicy", "CartPole-v1")


@pytest.mark.filterwarnings("ignore::placer.PlacerWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("ask", [_lightning, _transformers, _skorch, _pytorch_tabnet, _stable_baselines3])
def test_an_answer_without_a_calibration(ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "home"))
    name = ask.__name__[1:]
    pytest.importorskip(name, reason=f"{name} is not installed")
    answer = ask(importlib.import_module(f"placer.integrations.{name}").choose)
    assert answer.confidence is not None
    assert answer.provenance == "published"
