"""PyTorch Lightning: all arguments of ``Trainer``, with the answer among them.

Examples:
    >>> trainer = Trainer(**trainer_args(module, loader, val_loader, max_epochs=2))
"""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import torch
from torch import nn

import placer
from placer.errors import PlacerWarning, first_line
from placer.integrations import loops
from placer.tracing import stands_for
from placer.workload import strict

#: Arguments of ``Trainer`` that say where to train, and the values that leave it open.
_OPEN = {"accelerator": ("auto",), "devices": ("auto", 1), "strategy": ("auto",), "num_nodes": (1,)}
#: What Lightning's loops cost around a step with an update, one without and one of validation, each ``log`` in a step,
#: and the progress bar's turn, in Python functions of average length. The loops of version 2.6 enter 770, 600 and 450.
UPDATE, MICRO, VALIDATION, LOG, BAR = 650, 430, 280, 500, 160
#: The precisions that do not convert the module, and their dtype of autocast.
_PRECISIONS = {
    None: None, 32: None, "32": None, "32-true": None, 16: torch.float16, "16": torch.float16,
    "16-mixed": torch.float16, "bf16": torch.bfloat16, "bf16-mixed": torch.bfloat16,
}  # fmt: skip


class _Step(nn.Module):
    """A LightningModule's own step as a forward pass, in which each ``log`` costs what Lightning's does."""

    def __init__(self, module: Any, method: str) -> None:
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, batch: Any) -> Any:
        self.module.log = _log
        return getattr(self.module, self.method)(batch, 0)


@stands_for(LOG)
def _log(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
    """In place of ``LightningModule.log``, which needs a trainer: its ops on the value."""
    if isinstance(value, torch.Tensor):
        scalar = value.detach().clone().squeeze()
        scalar + scalar * 1.0  # a sum over the batches, each weighted by its size


def _loss_of(output: Any) -> torch.Tensor:
    """The loss in what a training step returns: a tensor, or a mapping with the entry ``loss``."""
    loss: torch.Tensor = output if isinstance(output, torch.Tensor) else output["loss"]
    return loss


def trainer_args(
    module: Any,
    train_dataloader: Any,
    val_dataloader: Any = None,
    *,
    optimizer: str | torch.optim.Optimizer | None = None,
    loading: str | placer.Loading | float | None = None,
    **trainer: Any,
) -> dict[str, Any]:
    """The arguments ``trainer``, with the ``accelerator`` and the ``devices`` where the whole fit finishes first.

    What is priced is the ``job`` of the same arguments; the decision is an INFO record of the logger ``placer``. An
    ``accelerator``, ``devices``, ``strategy`` or ``num_nodes`` of your own, other than Lightning's defaults, stays, and
    nothing is predicted. Of what ``job`` cannot price there is one PlacerWarning, and the default rule decides.

    Raises TypeError for what is no LightningModule.
    """
    _check(module)
    of_caller = [
        f"{name}={trainer[name]!r}" for name, usual in _OPEN.items() if trainer.get(name, usual[0]) not in usual
    ]
    if of_caller:
        loops.keep(", ".join(of_caller))
        return trainer
    fit = partial(job, module, train_dataloader, val_dataloader, optimizer=optimizer, loading=loading, **trainer)
    device = loops.choose_job(fit, [module]).device
    # One device, as placer never splits a model.
    devices = 1 if device.type == "cpu" or device.index is None else [device.index]
    return {**trainer, "accelerator": device.type, "devices": devices}


def job(
    module: Any,
    train_dataloader: Any,
    val_dataloader: Any = None,
    *,
    optimizer: str | torch.optim.Optimizer | None = None,
    loading: str | placer.Loading | float | None = None,
    **trainer: Any,
) -> placer.Job:
    """An epoch of ``Trainer.fit``: its training steps, then those of validation. It repeats ``max_epochs`` times.

    The parts are "training" (steps with an update), "accumulation" (those without, if gradients accumulate) and
    "validation". Lightning's own loop is priced with them, and each ``self.log``. Nothing is run or moved. A fit that
    ``max_steps`` ends within its first epoch is priced up to there.

    Args:
        module: a LightningModule with automatic optimization.
        train_dataloader: that of ``fit``, one, and so is ``val_dataloader``. The first batch says what a step is.
        optimizer: None: the first one of ``configure_optimizers``, or Adam where that raises.
        loading: ``"measure"`` times the loaders with some of their batches; or seconds, or a ``placer.Loading``.
        trainer: arguments of ``Trainer``. The documentation lists those that are read.

    Raises ValueError, TypeError for a wrong argument.
    """
    _check(module)
    for name in ("fast_dev_run", "overfit_batches"):
        if trainer.get(name):
            raise ValueError(f"{name}={trainer[name]!r} tries a fit out and is not priced: leave it out of a job")
    precision, limit = trainer.get("precision"), trainer.get("gradient_clip_val")
    if precision not in _PRECISIONS:
        accepted = ", ".join(sorted({str(name) for name in _PRECISIONS if isinstance(name, str)}))
        raise ValueError(f"precision must be one of {accepted} for a job, not {precision!r}: others convert the module")
    clip = nn.utils.clip_grad_value_ if trainer.get("gradient_clip_algorithm") == "value" else nn.utils.clip_grad_norm_
    bar = BAR if trainer.get("enable_progress_bar") is not False else 0
    accumulate = loops.whole("accumulate_grad_batches", trainer.get("accumulate_grad_batches", 1))
    batches = _batches("train", train_dataloader, trainer.get("limit_train_batches"))
    trained, repeats = _fit(trainer, batches, accumulate)
    parts = loops.training_parts(
        _Step(module, "training_step"),
        trained,
        accumulate=accumulate,
        clip=(lambda parameters: clip(parameters, limit)) if limit else None,
        update=UPDATE + bar,
        micro=MICRO + bar,
        loss=_loss_of,
        optimizer=_configured(module) if optimizer is None else optimizer,
        autocast=_PRECISIONS[precision],
        **_loaded(train_dataloader, loading),
    )
    if val_dataloader is not None and _validates(module):
        validated = _batches("val", val_dataloader, trainer.get("limit_val_batches"))
        count = validated * _validations(trainer, batches, trained)
        if count:
            parts.append(
                placer.Part(
                    "validation",
                    _Step(module, "validation_step"),
                    count=count,
                    mode="infer",
                    loop_calls=VALIDATION + bar,
                    autocast=_PRECISIONS[precision],
                    **_loaded(val_dataloader, loading),
                )
            )
    return placer.Job(parts, repeats=repeats)


def _check(module: Any) -> None:
    if not callable(getattr(module, "training_step", None)):
        raise TypeError(f"module must be a LightningModule with a training_step, not {type(module).__name__}")


def _loaded(loader: Any, loading: Any) -> dict[str, Any]:
    """What a part takes of a loader, whose batches are one argument of a step."""
    part = loops.loaded(loader, loading)
    return {**part, "batch": (part["batch"],)}


def _validates(module: Any) -> bool:
    """Whether the module has a validation step: the one of Lightning's own class is empty."""
    step = getattr(type(module), "validation_step", None)
    return step is not None and step.__module__.partition(".")[0] not in ("lightning", "pytorch_lightning")


def _configured(module: Any) -> torch.optim.Optimizer | None:
    """The first optimizer that the module would train with; None (Adam) where its own method raises.

    There is one PlacerWarning then, and under ``PLACER_STRICT=1`` the error, unless the method only needs a trainer.
    """
    try:
        optimizers = module.configure_optimizers()
    except Exception as error:
        if "is not attached to a `Trainer`" in str(error):  # what Lightning says where ``self.trainer`` is read
            return None
        if strict():
            raise
        message = f"configure_optimizers raised {type(error).__name__}: {first_line(error)}"
        warnings.warn(PlacerWarning(f"{message}; training with Adam is priced"), stacklevel=3)
        return None
    while isinstance(optimizers, (dict, tuple, list)) and optimizers:
        optimizers = optimizers.get("optimizer") if isinstance(optimizers, dict) else optimizers[0]
    return optimizers if isinstance(optimizers, torch.optim.Optimizer) else None


def _batches(which: str, loader: Any, limit: Any) -> int:
    """Batches of ``loader`` in an epoch. ``limit``: at most so many, or this share of them, as ``Trainer`` takes it."""
    try:
        length = len(loader)
    except TypeError:
        if isinstance(limit, int):
            return limit
        raise TypeError(f"the {which} loader has no length: give limit_{which}_batches a number of batches") from None
    if limit is None:
        return length
    return min(limit, length) if isinstance(limit, int) else int(length * limit)


def _fit(trainer: dict[str, Any], batches: int, accumulate: int) -> tuple[int, int | None]:
    """Batches that ``fit`` trains on in an epoch, fewer where ``max_steps`` ends it in the first, and its epochs.

    The epochs are None where nothing limits them.
    """
    if batches < 1:
        raise ValueError("the fit trains on no batch: give a loader with batches, and limit_train_batches above 0")
    epochs, steps = trainer.get("max_epochs") or -1, trainer.get("max_steps") or -1
    updates = math.ceil(batches / accumulate)
    if 0 < steps < updates:
        return steps * accumulate, 1
    limits = [epochs, math.ceil(steps / updates)]
    return batches, min((limit for limit in limits if limit > 0), default=None)


def _validations(trainer: dict[str, Any], batches: int, trained: int) -> float:
    """Validation runs in an epoch of so many batches, of which only the first ``trained`` ones may be trained on."""
    interval, every = trainer.get("val_check_interval"), trainer.get("check_val_every_n_epoch", 1)
    interval = 1.0 if interval is None else interval
    if isinstance(interval, bool) or not isinstance(interval, (int, float)) or interval <= 0:
        raise ValueError(f"val_check_interval must be a number above 0 for a job, not {interval!r}")
    between = interval if isinstance(interval, int) else max(int(batches * interval), 1)
    if trained < batches:  # the fit ends in its first epoch
        return trained // between if every in (None, 1) else 0.0
    return batches / between if every is None else batches // between / every
