"""Hugging Face Trainer: all ``TrainingArguments``, with the answer among them.

Examples:
    >>> arguments = TrainingArguments("out", **training_args(model, train_dataset, eval_dataset, num_train_epochs=2))
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import TrainingArguments, default_data_collator
from transformers.trainer_utils import RemoveColumnsCollator

import placer
from placer import machine
from placer.decision import ranks
from placer.integrations import loops

#: What the Trainer's loops cost around a step with an update, one without, and one of evaluation, in Python functions
#: of average length. Version 5.23 enters 630, 80 and 105, and the last two run small ops of their own.
UPDATE, MICRO, EVALUATION = 500, 230, 200
#: The optimizers of torch among the names that ``TrainingArguments(optim=...)`` takes.
_OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw_torch": torch.optim.AdamW,
    "adamw_torch_fused": partial(torch.optim.AdamW, fused=True),
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def training_args(
    model: torch.nn.Module,
    train_dataset: Any,
    eval_dataset: Any = None,
    *,
    data_collator: Callable[[list[Any]], Any] = default_data_collator,
    optimizer: str | torch.optim.Optimizer | None = None,
    loading: str | placer.Loading | float | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """The ``arguments`` for ``TrainingArguments``, with ``use_cpu`` as it is where the whole run finishes first.

    What is priced is the ``job`` of the same arguments, on the CPU and on the first accelerator, which the Trainer
    takes; the decision is an INFO record of the logger ``placer``. A ``use_cpu`` of your own stays, and so does
    ``fp16``, which the Trainer runs on a GPU only: then nothing is predicted. Of what ``job`` cannot price there is one
    PlacerWarning, and the default rule decides. Call this before ``TrainingArguments``, which fix the device of the
    process.
    """
    if "use_cpu" in arguments or arguments.get("fp16"):
        loops.keep(f"use_cpu={arguments['use_cpu']!r}" if "use_cpu" in arguments else "fp16, for a GPU,")
        return arguments
    options = {"data_collator": data_collator, "optimizer": optimizer, "loading": loading, **arguments}
    run = partial(job, model, train_dataset, eval_dataset, **options)
    # The Trainer takes the first accelerator whichever is free, and in a distributed run that of the rank.
    devices = None if ranks.distributed() else ("cpu", *machine.accelerators()[:1])
    return {**arguments, "use_cpu": loops.choose_job(run, [model], devices=devices).device.type == "cpu"}


class _Checked(torch.nn.Module):
    """A model whose loss is tested for being finite, as the Trainer does after each step: the host waits for it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Any:
        output = self.model(**inputs)
        loss = output["loss"] if isinstance(output, dict) else output[0]
        torch.isnan(loss.detach()).cpu()
        torch.isinf(loss.detach()).cpu()
        return output


def job(
    model: torch.nn.Module,
    train_dataset: Any,
    eval_dataset: Any = None,
    *,
    data_collator: Callable[[list[Any]], Any] = default_data_collator,
    optimizer: str | torch.optim.Optimizer | None = None,
    loading: str | placer.Loading | float | None = None,
    **arguments: Any,
) -> placer.Job:
    """An epoch of ``Trainer.train``: its training steps, then those of evaluation, ``num_train_epochs`` times.

    The parts are "training" (steps with an update), "accumulation" (those without, if gradients accumulate) and
    "evaluation" ("evaluation of" its name for each set of a dictionary). The Trainer's own loop is priced with them.
    Nothing is run or moved. Call this before ``TrainingArguments``, which fix the device of the process.

    Args:
        model: with its loss among the outputs, as the Trainer needs it.
        train_dataset: that of the ``Trainer``, and so are ``eval_dataset`` and ``data_collator``. Its first examples
            say what a step is.
        optimizer: an instance or a name; None: that of the argument ``optim``.
        loading: ``"measure"`` times the data sets with some of their batches; or seconds of each batch, or a
            ``placer.Loading``.
        arguments: those of ``TrainingArguments``. The documentation lists those that are read.

    Raises ValueError, TypeError for a wrong argument.
    """
    settings: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    settings |= arguments
    taken = [*inspect.signature(model.forward).parameters, "label", "label_ids"]
    collate = RemoveColumnsCollator(data_collator, taken)  # the Trainer leaves out what the model does not take

    def loader(which: str, dataset: Any) -> DataLoader[Any]:
        if not hasattr(dataset, "__len__"):
            raise TypeError(f"the {which} data set has no length, so how many steps an epoch has cannot be known")
        return DataLoader(
            dataset,
            loops.whole(f"per_device_{which}_batch_size", settings[f"per_device_{which}_batch_size"]),
            collate_fn=collate,
            drop_last=settings["dataloader_drop_last"],
            num_workers=settings["dataloader_num_workers"],
        )

    accumulate = loops.whole("gradient_accumulation_steps", settings["gradient_accumulation_steps"])
    autocast = torch.bfloat16 if settings["bf16"] else torch.float16 if settings["fp16"] else None
    training = loader("train", train_dataset)
    updates = math.ceil(len(training) / accumulate)
    total = settings["max_steps"] if settings["max_steps"] > 0 else math.ceil(settings["num_train_epochs"] * updates)
    repeats = math.ceil(total / updates)
    norm = settings["max_grad_norm"] or math.inf  # also where nothing is clipped, the norm of the gradients is computed
    parts = loops.training_parts(
        _Checked(model),
        min(len(training), total * accumulate),  # fewer where the run ends within its first epoch
        accumulate=accumulate,
        clip=partial(torch.nn.utils.clip_grad_norm_, max_norm=norm),
        update=UPDATE,
        micro=MICRO,
        autocast=autocast,
        optimizer=_optimizer(model, settings["optim"]) if optimizer is None else optimizer,
        **loops.loaded(training, loading),
    )
    times = _evaluations(settings, total, repeats) / repeats
    sets = eval_dataset if isinstance(eval_dataset, dict) else {"": eval_dataset}
    for name, held_out in sets.items():
        if held_out is not None and times:
            evaluation = loader("eval", held_out)
            parts.append(
                placer.Part(
                    f"evaluation of {name}" if name else "evaluation",
                    model,
                    count=len(evaluation) * times,
                    mode="infer",
                    loop_calls=EVALUATION,
                    autocast=autocast,
                    **loops.loaded(evaluation, loading),
                )
            )
    return placer.Job(parts, repeats=repeats)


def _evaluations(settings: Mapping[str, Any], updates: int, epochs: int) -> int:
    """Evaluations in a run of so many updates and epochs. A share for ``eval_steps`` is one of all updates."""
    strategy = getattr(settings["eval_strategy"], "value", settings["eval_strategy"])
    if strategy != "steps":
        return epochs if strategy == "epoch" else 0
    every: float = settings["eval_steps"] or settings["logging_steps"]
    return math.ceil(updates / (every if every >= 1 else math.ceil(every * updates)))  # the last one when it ends


def _optimizer(model: torch.nn.Module, name: Any) -> torch.optim.Optimizer:
    optim = getattr(name, "value", name)
    if optim not in _OPTIMIZERS:
        raise ValueError(
            f"optim must be one of {', '.join(_OPTIMIZERS)} for a job, not {optim!r}; give optimizer= an instance"
        )
    return _OPTIMIZERS[optim](parameter for parameter in model.parameters() if parameter.requires_grad)
