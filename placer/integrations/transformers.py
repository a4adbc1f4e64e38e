"""Hugging Face Trainer: ``TrainingArguments(use_cpu=...)``, and a callback that watches its steps.

>>> placement = choose(model, batch)
>>> arguments = TrainingArguments(..., use_cpu=use_cpu(placement))
>>> trainer = Trainer(model, arguments, ..., callbacks=[WatchSteps(placement)])
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

import placer
from placer.answer import Placement
from placer.integrations.hooks import StepHooks


def choose(model: torch.nn.Module, batch: Any, *, optimizer: Any = "adamw", **workload: Any) -> Placement:
    """Predict where ``model`` trains fastest on batches like ``batch``; nothing is moved: the Trainer does that.

    ``batch`` is what the data collator makes, labels included, so that the model computes its own loss. The default
    optimizer is the Trainer's. ``workload``: other arguments of ``placer.choose``. Call this before
    ``TrainingArguments``, which fix the device of the process.

    Raises:
        ValueError, TypeError: a wrong argument.
    """
    workload.setdefault("mode", "train")
    return placer.choose(model, example=dict(batch), optimizer=optimizer, move=False, **workload)


def use_cpu(placement: Placement) -> bool:
    """The value for ``TrainingArguments(use_cpu=...)``."""
    return torch.device(placement.device).type == "cpu"


class WatchSteps(TrainerCallback):  # type: ignore[misc]
    """A ``TrainerCallback`` that records how long training steps take, as ``Placement.step`` does.

    With gradient accumulation a step of the Trainer is several steps of the prediction: leave it out then.
    """

    def __init__(self, placement: Placement) -> None:
        self._hooks = StepHooks(placement)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._hooks.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._hooks.end()
