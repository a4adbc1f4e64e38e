"""Hugging Face Trainer: all ``TrainingArguments``, with the answer among them.

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
    "adamw_torch_fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
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
    run = partial(
        job,
        model,
        train_dataset,
        eval_dataset,
        data_collator=data_collator,
        optimizer=optimizer,
        loading=loading,
        **arguments,
    )
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
    fields = {field.name: field for field in dataclasses.fields(TrainingArguments)}

    def argument(name: str) -> Any:
        return arguments.get(name, fields[name].default)

    collate = _Collate(data_collator, frozenset(inspect.signature(model.forward).parameters))

    def loader(which: str, dataset: Any) -> DataLoader[Any]:
        if not hasattr(dataset, "__len__"):
            raise TypeError(f"the {which} data set has no length, so how many steps an epoch has cannot be known")
        rows = loops.whole(f"per_device_{which}_batch_size", argument(f"per_device_{which}_batch_size"))
        return DataLoader(
            dataset,
            rows,
            collate_fn=collate,
            drop_last=argument("dataloader_drop_last"),
            num_workers=argument("dataloader_num_workers"),
        )

    accumulate = loops.whole("gradient_accumulation_steps", argument("gradient_accumulation_steps"))
    autocast = torch.bfloat16 if argument("bf16") else torch.float16 if argument("fp16") else None
    training = loader("train", train_dataset)
    updates = math.ceil(len(training) / accumulate)
    total = argument("max_steps") if argument("max_steps") > 0 else math.ceil(argument("num_train_epochs") * updates)
    repeats = math.ceil(total / updates)
    batches = min(len(training), total * accumulate)  # fewer where the run ends within its first epoch
    norm = argument("max_grad_norm") or math.inf  # also where nothing is clipped, the norm of the gradients is computed
    parts = loops.training_parts(
        _Checked(model),
        batches,
        accumulate=accumulate,
        clip=lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, norm),
        update=UPDATE,
        micro=MICRO,
        batch=loops.first_batch(training),
        autocast=autocast,
        optimizer=_optimizer(model, argument("optim")) if optimizer is None else optimizer,
        loading=loops.loading_of(loading, training),
    )
    times = _evaluations(argument, total, repeats) / repeats
    several = isinstance(eval_dataset, dict)
    for name, held_out in (eval_dataset if several else {"": eval_dataset}).items():
        if held_out is None or not times:
            continue
        evaluation = loader("eval", held_out)
        parts.append(
            placer.Part(
                f"evaluation of {name}" if several else "evaluation",
                model,
                count=len(evaluation) * times,
                mode="infer",
                batch=loops.first_batch(evaluation),
                loading=loops.loading_of(loading, evaluation),
                loop_calls=EVALUATION,
                autocast=autocast,
            )
        )
    return placer.Job(parts, repeats=repeats)


@dataclasses.dataclass(frozen=True)
class _Collate:
    """Makes a batch of examples, without what ``model.forward`` does not take: the Trainer leaves that out too."""

    collator: Callable[[list[Any]], Any]
    taken: frozenset[str]

    def __call__(self, examples: list[Any]) -> dict[str, Any]:
        return dict(self.collator([self._kept(example) for example in examples]))

    def _kept(self, example: Any) -> Any:
        if not isinstance(example, Mapping):
            return example
        return {name: value for name, value in example.items() if name in self.taken or name in ("label", "label_ids")}


def _evaluations(argument: Callable[[str], Any], updates: int, epochs: int) -> int:
    """Evaluations in a run of so many updates and epochs. A share for ``eval_steps`` is one of all updates."""
    strategy = getattr(argument("eval_strategy"), "value", argument("eval_strategy"))
    if strategy != "steps":
        return epochs if strategy == "epoch" else 0
    every: float = argument("eval_steps") or argument("logging_steps")
    return math.ceil(updates / (every if every >= 1 else math.ceil(every * updates)))  # the last one when it ends


def _optimizer(model: torch.nn.Module, name: Any) -> torch.optim.Optimizer:
    optim = getattr(name, "value", name)
    if optim not in _OPTIMIZERS:
        raise ValueError(
            f"optim must be one of {', '.join(_OPTIMIZERS)} for a job, not {optim!r}; give optimizer= an instance"
        )
    return _OPTIMIZERS[optim](parameter for parameter in model.parameters() if parameter.requires_grad)
