"""An epoch of skorch's ``fit``: 32 training batches of 128 rows, then 8 of validation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import nn

from placer.integrations.skorch import job
from placer.workload import Job


class Classifier(nn.Module):
    """Rows of 20 features to the probabilities of 2 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(20, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2), nn.Softmax(-1)
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:  # noqa: N803 - scikit-learn's own name
        out: torch.Tensor = self.layers(X)
        return out


class Clock(Callback):  # type: ignore[misc]
    """Seconds of the latest epoch."""

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        self.seconds = time.perf_counter() - self.began


def build() -> tuple[Job, Callable[[], float]]:
    """The job, and what runs it once and returns its seconds."""
    rows = np.random.default_rng(0).normal(size=(5120, 20)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(np.int64)
    clock = Clock()
    net = NeuralNetClassifier(
        Classifier, max_epochs=1, batch_size=128, verbose=0, callbacks=[("clock", clock)], device="cpu"
    )

    def run() -> float:
        net.partial_fit(rows, labels)
        return clock.seconds

    return job(net, rows, labels), run
