"""An epoch of pytorch-tabnet's ``fit``: 4 batches of 512 rows, then 2 of an evaluation set."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from pytorch_tabnet.callbacks import Callback
from pytorch_tabnet.tab_model import TabNetClassifier

from placer.integrations.pytorch_tabnet import job
from placer.workload import Job

SIZES = {"batch_size": 512, "virtual_batch_size": 128}


class Clock(Callback):  # type: ignore[misc]
    """Seconds of the latest epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds = time.perf_counter() - self.began


def build() -> tuple[Job, Callable[[], float]]:
    """The job, and what runs it once and returns its seconds."""
    rows, held_out = _data(2048), _data(1024)

    def run() -> float:
        clock = Clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which device, and which epoch was best
            TabNetClassifier(verbose=0, device_name="cpu").fit(
                *rows, eval_set=[held_out], max_epochs=2, callbacks=[clock], compute_importance=False, **SIZES
            )
        return clock.seconds

    return job(TabNetClassifier(verbose=0), *rows, eval_set=[held_out], **SIZES), run


def _data(rows: int) -> tuple[Any, Any]:
    table = np.random.default_rng(rows).normal(size=(rows, 20)).astype(np.float32)
    return table, (table[:, 0] > 0).astype(np.int64)
