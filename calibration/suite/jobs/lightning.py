"""A fit of PyTorch Lightning with validation: digits of 28 x 28 pixels, as its tutorials have them."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import placer
from placer.integrations import lightning as integration

BATCH, TRAINING_ROWS, VALIDATION_ROWS = 64, 3200, 1280
#: All that the job and the trainer have in common.
OPTIONS: dict[str, Any] = {"max_epochs": 2, "gradient_clip_val": 1.0, "enable_progress_bar": False}


class Digits(L.LightningModule):  # type: ignore[misc]
    """Two convolutions and two linear layers, trained with Adam; both losses and the accuracy are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10),
        )  # fmt: skip

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        pixels, digit = batch
        loss = nn.functional.cross_entropy(self.net(pixels), digit)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        pixels, digit = batch
        scores = self.net(pixels)
        self.log("val_loss", nn.functional.cross_entropy(scores, digit))
        self.log("val_accuracy", (scores.argmax(1) == digit).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


class _Epochs(L.Callback):  # type: ignore[misc]
    """The seconds of each epoch, its validation included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_train_epoch_start(self, *args: Any) -> None:
        self._started = time.perf_counter()

    def on_train_epoch_end(self, *args: Any) -> None:  # after the validation of the epoch
        self.seconds.append(time.perf_counter() - self._started)


def build() -> tuple[placer.Job, Callable[[], float]]:
    """The job, an epoch, and a function that fits for two epochs and returns the seconds of the second.

    The first epoch warms up, and the sanity check and the trainer's set-up are before it: none of that is in the time.
    """
    module, (training, validation) = Digits(), [_loader(rows) for rows in (TRAINING_ROWS, VALIDATION_ROWS)]

    def fit() -> float:
        epochs = _Epochs()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = L.Trainer(
                accelerator="cpu", logger=False, enable_checkpointing=False, enable_model_summary=False,
                callbacks=[epochs], **OPTIONS,
            )  # fmt: skip
            trainer.fit(module, training, validation)
        return epochs.seconds[-1]

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return integration.job(module, training, validation, loading="measure", **OPTIONS), fit


def _loader(rows: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(rows, 1, 28, 28), torch.randint(0, 10, (rows,))), BATCH)
