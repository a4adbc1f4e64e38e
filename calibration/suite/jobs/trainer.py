"""A run of Hugging Face's Trainer with evaluation and gradient accumulation: a small BERT that classifies texts."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

import placer
from placer.integrations import transformers as integration

TOKENS, WORDS, TRAINING_ROWS, EVALUATION_ROWS = 64, 2000, 384, 192
#: All that the job and the arguments of training have in common.
OPTIONS: dict[str, Any] = {
    "per_device_train_batch_size": 8, "per_device_eval_batch_size": 16, "gradient_accumulation_steps": 4,
    "num_train_epochs": 2, "eval_strategy": "epoch",
}  # fmt: skip


class _Epochs(TrainerCallback):  # type: ignore[misc]
    """The seconds of each epoch, its evaluation included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
        self._started = time.perf_counter()

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self.seconds.append(time.perf_counter() - self._started)


def build() -> tuple[placer.Job, Callable[[], float]]:
    """The job, an epoch, and a function that trains for two epochs and returns the seconds of the second.

    The first epoch warms up, and the Trainer's set-up is before it: none of that is in the time.
    """
    config = BertConfig(
        vocab_size=WORDS, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
        max_position_embeddings=TOKENS,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    training, evaluation = _texts(TRAINING_ROWS), _texts(EVALUATION_ROWS)

    def train() -> float:
        epochs = _Epochs()
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, use_cpu=True, save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
                **OPTIONS,
            )  # fmt: skip
            Trainer(
                model, arguments, train_dataset=training, eval_dataset=evaluation, callbacks=[epochs]
            ).train()
        return epochs.seconds[-1]

    return integration.job(model, training, evaluation, loading="measure", **OPTIONS), train


def _texts(rows: int) -> list[dict[str, Any]]:
    tokens = torch.randint(0, WORDS, (rows, TOKENS))
    mask = torch.ones(TOKENS, dtype=torch.long)
    return [{"input_ids": row, "attention_mask": mask, "labels": int(row.sum()) % 2} for row in tokens]
