"""PyTorch Lightning: where ``Trainer`` should train, and a callback that watches its steps.

>>> placement = choose(module, batch)
>>> trainer = Trainer(accelerator=accelerator(placement), devices=devices(placement), callbacks=[WatchSteps(placement)])
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

import placer
from placer.answer import Placement
from placer.integrations.hooks import StepHooks

# Two packages hold the same library, and a trainer takes callbacks of its own one: the one that the script imported.
if "lightning.pytorch" in sys.modules or "pytorch_lightning" not in sys.modules:
    from lightning.pytorch import Callback
else:
    from pytorch_lightning import Callback

#: What Lightning calls the accelerators of torch.
_NAMES = {"cpu": "cpu", "cuda": "cuda", "mps": "mps", "xla": "tpu"}


class _TrainingStep(nn.Module):
    """A LightningModule's own step as a forward pass: its output is the loss."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Any) -> Any:
        return self.module.training_step(batch, 0)


def choose(
    module: Any, batch: Any, *, optimizer: str | torch.optim.Optimizer | None = None, **workload: Any
) -> Placement:
    """Predict where ``module`` (a LightningModule) trains fastest on batches like ``batch``; nothing is moved.

    What is priced is its own ``training_step``, with the first optimizer of ``configure_optimizers`` (Adam where that
    needs a trainer) unless ``optimizer`` is given. ``workload``: other arguments of ``placer.choose``.

    Raises:
        ValueError, TypeError: a wrong argument.
    """
    if not callable(getattr(module, "training_step", None)):
        raise TypeError(f"module must be a LightningModule with a training_step, not {type(module).__name__}")
    return placer.choose(
        _TrainingStep(module),
        example=(batch,),
        mode="train",
        loss=_loss,
        optimizer=_configured(module) if optimizer is None else optimizer,
        move=False,
        **workload,
    )


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
    """The first optimizer that the module would train with; None (Adam) if only a trainer can get it to say."""
    try:
        found = module.configure_optimizers()
    except Exception:  # noqa: BLE001 - the user's own method, which may ask for the trainer that is yet to come
        return None
    return _first_optimizer(found)


def _first_optimizer(found: Any) -> torch.optim.Optimizer | None:
    """``configure_optimizers`` may return an optimizer, a dict, and sequences of both."""
    if isinstance(found, torch.optim.Optimizer):
        return found
    if isinstance(found, dict):
        return _first_optimizer(found.get("optimizer"))
    if isinstance(found, (tuple, list)) and found:
        return _first_optimizer(found[0])
    return None


def _loss(output: Any) -> Tensor:
    loss: Tensor = output["loss"] if isinstance(output, dict) else output
    return loss
