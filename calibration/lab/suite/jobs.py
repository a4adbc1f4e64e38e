"""Jobs of real libraries, each with a function that lets the library run it once, and one for the documentation.

The libraries are imported where a job is built. ``placer explain calibration/lab/suite/jobs.py:rollouts`` loads it.
"""

from __future__ import annotations

import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.lab.suite.accounts_dense import convolutions
from placer.calibration.suite.quick import mlp
from placer.workload import Job, Part

#: What is run of Lightning and of the Trainer: all that the job and the library's own arguments have in common.
LIGHTNING: dict[str, Any] = {"max_epochs": 2, "gradient_clip_val": 1.0, "enable_progress_bar": False}
TRAINER: dict[str, Any] = {
    "per_device_train_batch_size": 8, "per_device_eval_batch_size": 16, "gradient_accumulation_steps": 4,
    "num_train_epochs": 2, "eval_strategy": "epoch",
}  # fmt: skip


def rollouts() -> Job:
    """A small policy acts in eight environments for 2,048 steps, then learns from large batches of what it saw."""
    policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    return Job(
        [
            Part("acting", policy, (8, 8), count=2048, mode="infer"),
            Part("learning", policy, (4096, 8), count=40, mode="train"),
        ]
    )


#: A job, and what lets the library do it once and returns the seconds that it took.
RealJob = tuple[Job, Callable[[], float]]


class Clock:
    """Seconds from ``start`` to the latest ``stop``; both take what a library's callback is given."""

    seconds = 0.0

    def start(self, *args: Any, **kwargs: Any) -> None:
        self._began = time.perf_counter()

    def stop(self, *args: Any, **kwargs: Any) -> None:
        self.seconds = time.perf_counter() - self._began


def stable_baselines3() -> RealJob:
    """An iteration of Stable-Baselines3's PPO on CartPole: 256 policy steps, then 40 updates."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    from placer.integrations.stable_baselines3 import job

    class Iteration(BaseCallback):
        """From the first policy step to the end of the updates."""

        def __init__(self) -> None:
            super().__init__()
            self.clock = Clock()

        def _on_rollout_start(self) -> None:
            self.clock.start()

        def _on_step(self) -> bool:
            return True

        def _on_training_end(self) -> None:
            self.clock.stop()

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, device="cpu")

    def run() -> float:
        iteration = Iteration()
        model.learn(256, callback=iteration, reset_num_timesteps=False)
        return iteration.clock.seconds

    environments: Any = model.get_env()
    environments.reset()
    began = time.perf_counter()
    for _ in range(1000):
        environments.step([environments.action_space.sample()])
    seconds = (time.perf_counter() - began) / 1000
    return job(PPO, "MlpPolicy", "CartPole-v1", env_seconds=seconds, n_steps=256, batch_size=64), run


def skorch() -> RealJob:
    """An epoch of skorch's ``fit``: 32 training batches of 128 rows, then 8 of validation."""
    import numpy as np
    from skorch import NeuralNetClassifier

    from placer.integrations.skorch import job

    rows = np.random.default_rng(0).normal(size=(5120, 20)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(np.int64)
    classifier = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(), *mlp((64, 64, 2)), nn.Softmax(-1))
    net = NeuralNetClassifier(classifier, max_epochs=1, batch_size=128, verbose=0, device="cpu")

    def run() -> float:
        began = time.perf_counter()
        net.partial_fit(rows, labels)
        return time.perf_counter() - began

    return job(net, rows, labels), run


def lightning(training_rows: int = 3200, validation_rows: int = 1280) -> RealJob:
    """A fit of PyTorch Lightning with validation: digits of 28 x 28 pixels, as its tutorials have them.

    The second epoch counts: the first one warms up, and the sanity check and the trainer's set-up are before it.
    """
    import lightning.pytorch as L
    from torch.utils.data import DataLoader, TensorDataset

    from placer.integrations import lightning as integration

    class Digits(L.LightningModule):  # type: ignore[misc]
        """Two convolutions and two linear layers, trained with Adam; both losses and the accuracy are logged."""

        def __init__(self) -> None:
            super().__init__()
            self.net = convolutions([1, 16, 32], 3, 0, [128], 28)

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

    def loader(rows: int) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.randn(rows, 1, 28, 28), torch.randint(0, 10, (rows,))), 64)

    module, training, validation = Digits(), loader(training_rows), loader(validation_rows)

    def run() -> float:
        clock, epochs = Clock(), L.Callback()
        epochs.on_train_epoch_start, epochs.on_train_epoch_end = clock.start, clock.stop  # after its validation
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = L.Trainer(
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_model_summary=False,
                callbacks=[epochs],
                **LIGHTNING,
            )
            trainer.fit(module, training, validation)
        return clock.seconds

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return integration.job(module, training, validation, loading="measure", **LIGHTNING), run


def trainer(training_rows: int = 384, evaluation_rows: int = 192) -> RealJob:
    """A run of Hugging Face's Trainer with evaluation and gradient accumulation: a small BERT that classifies texts.

    The second epoch and its evaluation count: the first one warms up, and the Trainer's set-up is before it.
    """
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

    from placer.integrations import transformers as integration

    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    model = BertForSequenceClassification(BertConfig(vocab_size=2000, max_position_embeddings=64, **sizes))

    def texts(rows: int) -> list[dict[str, Any]]:
        tokens = torch.randint(0, 2000, (rows, 64))
        mask = torch.ones(64, dtype=torch.long)
        return [{"input_ids": row, "attention_mask": mask, "labels": int(row.sum()) % 2} for row in tokens]

    training, evaluation = texts(training_rows), texts(evaluation_rows)

    def run() -> float:
        clock, epochs = Clock(), TrainerCallback()
        epochs.on_epoch_begin, epochs.on_evaluate = clock.start, clock.stop
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder,
                use_cpu=True,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                **TRAINER,
            )
            Trainer(model, arguments, train_dataset=training, eval_dataset=evaluation, callbacks=[epochs]).train()
        return clock.seconds

    return integration.job(model, training, evaluation, loading="measure", **TRAINER), run


def generate() -> RealJob:
    """``generate`` of transformers: a GPT of DistilGPT2's size writes 32 tokens after a prompt of 64."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from placer.integrations.generation import generation

    model = GPT2LMHeadModel(GPT2Config(n_layer=6)).eval()
    model.generation_config.eos_token_id = None  # no token ends a text of these random weights
    ids = torch.zeros(1, 64, dtype=torch.int64)

    def run() -> float:
        began = time.perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32)
        return time.perf_counter() - began

    return generation(model, 64, 32), run


#: The jobs by name, in the table's order.
JOBS: dict[str, Callable[[], RealJob]] = {
    "stable_baselines3": stable_baselines3, "skorch": skorch, "lightning": lightning, "trainer": trainer,
    "generate": generate,
}  # fmt: skip
