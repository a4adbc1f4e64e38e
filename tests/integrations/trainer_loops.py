"""Counts the functions that each turn of a Trainer's loops enters, and prints them as JSON."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any

import torch
import transformers

from placer.tracing.python_calls import PythonCalls


class Bare(torch.nn.Module):
    """A model that enters as few functions as a model can."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return {"loss": (x @ self.weight).sum()}


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": [0.0, 1.0], "labels": 0}


def functions(run: Callable[[], object]) -> int:
    counter = PythonCalls()
    with counter.counting():
        run()
    return counter.count


def of_trainer(batches: int, accumulate: int = 1, *, evaluates: bool = False) -> int:
    """The functions that a Trainer enters in so many batches of training, or of evaluation: the fewer of two runs."""
    arguments = transformers.TrainingArguments(
        "out", per_device_train_batch_size=1, per_device_eval_batch_size=1, num_train_epochs=1,
        logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
        gradient_accumulation_steps=accumulate,
    )  # fmt: skip
    counts = []
    for _ in range(2):
        trainer = transformers.Trainer(Bare(), arguments, train_dataset=Rows(batches), eval_dataset=Rows(batches))
        counts.append(functions(trainer.evaluate if evaluates else trainer.train))
    return min(counts)


def counted() -> dict[str, float]:
    ready = torch.utils.data.DataLoader(Rows(16), 1, collate_fn=transformers.default_data_collator)
    of_trainer(2)  # what only the first run of a process enters, imports above all
    loader = functions(lambda: list(ready)) / 16  # what the data loader enters is measured with it, where asked for
    return {
        "update": (of_trainer(40) - of_trainer(8)) / 32 - loader,
        # Two updates each.
        "micro": (of_trainer(32, 16) - of_trainer(16, 8)) / 16 - loader,
        "evaluation": (of_trainer(24, evaluates=True) - of_trainer(8, evaluates=True)) / 16 - loader,
    }


if __name__ == "__main__":
    gc.disable()  # finalizers enter functions too, at any time
    print(json.dumps(counted()))
