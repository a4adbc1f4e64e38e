"""skorch: ``NeuralNet(device=...)``, and a callback that chooses when ``fit`` knows the data.

>>> net = NeuralNetClassifier(Net, device=choose(NeuralNetClassifier(Net), X, y).device)
>>> net = NeuralNetClassifier(Net, callbacks=[ChooseOnFit()])  # inside a scikit-learn pipeline
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from skorch.callbacks import Callback
from torch import Tensor

import placer
from placer.answer import Placement
from placer.decision import same_randomness
from placer.integrations.hooks import StepHooks
from placer.placement import move_modules, move_optimizer


def choose(net: Any, X: Any, y: Any = None, **workload: Any) -> Placement:  # noqa: N803 - scikit-learn's own name
    """Predict where ``net`` (a skorch ``NeuralNet``) fits ``X`` and ``y`` fastest; ``net`` is only read.

    One step is the net's own: its batch size, criterion and optimizer, without the penalties of an overridden
    ``get_loss``. Its epochs are the steps that follow. ``workload``: other arguments of ``placer.choose``.

    Raises:
        ValueError, TypeError: a wrong argument.
    """
    if not callable(getattr(net, "get_iterator", None)):
        raise TypeError(f"net must be a skorch NeuralNet, not {type(net).__name__}")
    if not getattr(net, "initialized_", False):
        net = copy.deepcopy(net).set_params(device="cpu", verbose=0, callbacks=None)
    with same_randomness(()):  # the weights that fit will draw, and the order of its batches, stay the same
        if not getattr(net, "initialized_", False):
            net.initialize()
        return _choose(net, X, y, workload)


class ChooseOnFit(Callback):  # type: ignore[misc]
    """A skorch callback that chooses when training begins, moves the net, and records its steps.

    For pipelines and searches, where only ``fit`` knows the data that reaches the net. ``workload``: other arguments of
    ``placer.choose``. ``placement_`` is the last choice.
    """

    def __init__(self, **workload: Any) -> None:
        self.workload = workload

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What scikit-learn's ``clone`` makes the next one from."""
        return dict(self.workload)

    def set_params(self, **workload: Any) -> Any:
        """As scikit-learn's; any argument of ``placer.choose``."""
        self.workload.update(workload)
        return self

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        with same_randomness(()):
            self.placement_ = _choose(net, X, y, dict(self.workload))
        device = torch.device(self.placement_.device)
        move_modules([net.module_, net.criterion_], device)
        move_optimizer(net.optimizer_, device)
        net.device = self.placement_.device
        self._hooks = StepHooks(self.placement_)

    def on_batch_begin(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        if training:
            self._hooks.begin()

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        if training:
            self._hooks.end()


def _choose(net: Any, X: Any, y: Any, workload: dict[str, Any]) -> Placement:  # noqa: N803
    training, _ = net.get_split_datasets(X, y)
    batches = net.get_iterator(training, training=True)
    inputs, target = next(iter(batches))
    workload.setdefault("steps", max(1, len(batches) * net.max_epochs))
    criterion = net.criterion_

    def loss(output: Any) -> Tensor:
        predicted = output[0] if isinstance(output, tuple) else output
        # As NeuralNetClassifier.get_loss does: modules end in a softmax, NLLLoss wants its logarithm.
        if isinstance(criterion, torch.nn.NLLLoss):
            predicted = torch.log(predicted + torch.finfo(predicted.dtype).eps)
        result: Tensor = criterion(predicted, target.to(predicted.device))
        return result

    return placer.choose(
        net.module_, example=inputs, mode="train", loss=loss, optimizer=net.optimizer_, move=False, **workload
    )
