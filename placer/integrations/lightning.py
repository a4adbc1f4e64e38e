"""PyTorch Lightning: where ``Trainer`` should train, and a callback that watches its steps.

>>> placement = choose(module, batch)  # or, with validation: placer.choose(job(module, loader, val_loader), move=False)
>>> trainer = Trainer(accelerator=accelerator(placement), devices=devices(placement), callbacks=[WatchSteps(placement)])
"""

from __future__ import annotations

import inspect
import sys
import traceback
import warnings
from typing import Any

import torch
from torch import nn

import placer
from placer.answer import Placement
from placer.errors import PlacerWarning, first_line
from placer.integrations.hooks import StepHooks
from placer.integrations.lightning_arguments import autocast_of, batches_of, check_priced, fit_of, validations
from placer.integrations.training_loops import (
    Clipping,
    Loop,
    check_names,
    enter_functions,
    first_batch,
    loading_of,
    loss_of,
    training_parts,
    whole,
)
from placer.workload import strict

# Two packages hold the same library, and a trainer takes callbacks of its own one: the one that the script imported.
if "lightning.pytorch" in sys.modules or "pytorch_lightning" not in sys.modules:
    from lightning.pytorch import Callback
    from lightning.pytorch import LightningModule as _LightningModule
    from lightning.pytorch import Trainer as _Trainer
else:
    from pytorch_lightning import Callback
    from pytorch_lightning import LightningModule as _LightningModule
    from pytorch_lightning import Trainer as _Trainer

#: What Lightning calls the accelerators of torch.
_NAMES = {"cpu": "cpu", "cuda": "cuda", "mps": "mps", "xla": "tpu"}
#: Lightning's loops around a step with an update, one without, and one of validation; counted in version 2.6.
UPDATE, MICRO, VALIDATION = Loop(770, 650), Loop(600, 430), Loop(450, 280)
#: The worth of each ``log`` in a step, and of the progress bar's turn, in the same unit.
LOG, BAR = 500, 160


class _Step(nn.Module):
    """A LightningModule's own step as a forward pass; ``method`` is its name. The output of training is the loss.

    ``logs``: each ``log`` of the step costs what Lightning's does, but is silent and stores nothing.
    """

    def __init__(self, module: Any, method: str = "training_step", *, logs: bool = False) -> None:
        super().__init__()
        self.module = module
        self.method, self.logs = method, logs

    def forward(self, batch: Any) -> Any:
        if self.logs:
            self.module.log = _log
        return getattr(self.module, self.method)(batch, 0)


def _log(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
    """In place of ``LightningModule.log``, which needs a trainer: as many functions, and its ops on the value."""
    enter_functions(LOG)
    if isinstance(value, torch.Tensor):
        kept = value.detach().clone().squeeze()
        kept + kept * 1.0  # a sum over the batches, each weighted by its size


def choose(
    module: Any, batch: Any, *, optimizer: str | torch.optim.Optimizer | None = None, **workload: Any
) -> Placement:
    """Predict where ``module`` (a LightningModule) trains fastest on batches like ``batch``; nothing is moved.

    What is priced is its own ``training_step``, with the first optimizer of ``configure_optimizers`` (Adam where that
    needs a trainer) unless ``optimizer`` is given. ``workload``: other arguments of ``placer.choose``.

    Raises:
        ValueError, TypeError: a wrong argument.
    """
    _check(module)
    return placer.choose(
        _Step(module),
        example=(batch,),
        mode="train",
        loss=loss_of,
        optimizer=_configured(module) if optimizer is None else optimizer,
        move=False,
        **workload,
    )


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
        train_dataloader: that of ``fit``, one. Its first batch says what a step is.
        val_dataloader: that of ``fit``, one.
        optimizer: as in ``choose``.
        loading: ``"measure"`` times the loaders with some of their batches; or seconds, or a ``placer.Loading``.
        trainer: arguments of ``Trainer``. What is read: ``max_epochs``, ``max_steps``, ``limit_train_batches``,
            ``limit_val_batches``, ``val_check_interval``, ``check_val_every_n_epoch``, ``accumulate_grad_batches``,
            ``gradient_clip_val``, ``gradient_clip_algorithm``, ``precision``, ``enable_progress_bar``.

    Raises:
        ValueError, TypeError: a wrong argument.
    """
    _check(module)
    check_names(trainer, inspect.signature(_Trainer.__init__).parameters, "Trainer")
    check_priced(trainer)
    bar = BAR if trainer.get("enable_progress_bar") is not False else 0
    autocast = autocast_of(trainer.get("precision"))
    clip = trainer.get("gradient_clip_val")
    accumulate = whole("accumulate_grad_batches", trainer.get("accumulate_grad_batches", 1))
    batches = batches_of("train", train_dataloader, trainer.get("limit_train_batches"))
    trained, repeats = fit_of(trainer, batches, accumulate)
    parts = training_parts(
        _Step(module, logs=True), trained, accumulate=accumulate,
        clips=Clipping(clip, trainer.get("gradient_clip_algorithm") == "value") if clip else None,
        update=UPDATE.worth + bar, micro=MICRO.worth + bar, example=(first_batch(train_dataloader),), loss=loss_of,
        optimizer=_configured(module) if optimizer is None else optimizer,
        loading=loading_of(loading, train_dataloader), autocast=autocast,
    )  # fmt: skip
    if val_dataloader is not None and _has_own(module, "validation_step"):
        validated = batches_of("val", val_dataloader, trainer.get("limit_val_batches"))
        times = validations(
            batches, trainer.get("val_check_interval"), trainer.get("check_val_every_n_epoch", 1), trained=trained
        )
        if validated and times:
            parts.append(placer.Part(
                "validation", _Step(module, "validation_step", logs=True), count=validated * times, mode="infer",
                example=(first_batch(val_dataloader),), loading=loading_of(loading, val_dataloader),
                loop_calls=VALIDATION.worth + bar, autocast=autocast,
            ))  # fmt: skip
    return placer.Job(parts, repeats=repeats)


def accelerator(placement: Placement) -> str:
    """The value for ``Trainer(accelerator=...)``."""
    kind = torch.device(placement.device).type
    return _NAMES.get(kind, kind)


def devices(placement: Placement) -> int | list[int]:
    """The value for ``Trainer(devices=...)``: one, as placer never splits a model."""
    index = torch.device(placement.device).index
    return 1 if index is None or placement.device.startswith("cpu") else [index]


class WatchSteps(Callback):  # type: ignore[misc]
    """A callback that records how long training batches take, as ``Placement.step`` does.

    Without their copy to the device: Lightning copies before it says that a batch starts.
    """

    def __init__(self, placement: Placement) -> None:
        self._hooks = StepHooks(placement)

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        self._hooks.begin()

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        self._hooks.end()


def _configured(module: Any) -> torch.optim.Optimizer | None:
    """The first optimizer that the module would train with; None (Adam) if only a trainer can get it to say.

    Any other error of the user's own method is told in a PlacerWarning, or raised under ``PLACER_STRICT=1``.
    """
    try:
        found = module.configure_optimizers()
    except Exception as error:
        if _asked_for_a_trainer(module, error):
            return None
        if strict():
            raise
        said = f"configure_optimizers raised {type(error).__name__}: {first_line(error)}; training with Adam is priced"
        warnings.warn(PlacerWarning(said), stacklevel=3)
        return None
    return _first_optimizer(found)


def _asked_for_a_trainer(module: Any, error: Exception) -> bool:
    """Whether Lightning itself raised the error where the module was asked for the trainer that is yet to come."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    getter = getattr(type(module), "trainer", None)
    return isinstance(getter, property) and frame.f_code is getattr(getter.fget, "__code__", None)


def _first_optimizer(found: Any) -> torch.optim.Optimizer | None:
    """``configure_optimizers`` may return an optimizer, a dict, and sequences of both."""
    if isinstance(found, torch.optim.Optimizer):
        return found
    if isinstance(found, dict):
        return _first_optimizer(found.get("optimizer"))
    if isinstance(found, (tuple, list)) and found:
        return _first_optimizer(found[0])
    return None


def _check(module: Any) -> None:
    if not callable(getattr(module, "training_step", None)):
        raise TypeError(f"module must be a LightningModule with a training_step, not {type(module).__name__}")


def _has_own(module: Any, method: str) -> bool:
    """Whether the user's class defines ``method``: Lightning's own one is empty."""
    return getattr(type(module), method, None) is not getattr(_LightningModule, method)
