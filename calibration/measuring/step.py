"""One real step of a workload, exactly as it was traced: what validation times."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from placer.nest import map_nest, tensors
from placer.placement import move
from placer.workload import Workload, optimizer_classes

#: So small that thousands of timed steps leave the weights where they are: NaN, infinities and denormals have other
#: speeds than numbers. The cost of an update does not depend on it.
LEARNING_RATE = 1e-7


def default_loss(output: Any) -> Tensor:
    """What ``loss=None`` stands for in the tracer: the loss an output carries, else the sum of all that can train."""
    loss = getattr(output, "loss", None)
    if isinstance(loss, Tensor) and loss.is_floating_point() and loss.dim() == 0:
        return loss
    floating = [tensor for tensor in tensors(output) if tensor.is_floating_point() and tensor.requires_grad]
    if not floating:
        raise ValueError("no floating tensor of the output depends on a parameter: give loss=")
    total = floating[0].sum()
    for tensor in floating[1:]:
        total = total + tensor.sum()
    return total


def make_optimizer(model: nn.Module, name: str) -> torch.optim.Optimizer:
    """The named optimizer with its own defaults over the trainable parameters."""
    kind = cast(Any, optimizer_classes()[name])
    optimizer: torch.optim.Optimizer = kind([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)
    return optimizer


class Step:
    """Calling it runs one step: the batch to the device, forward, loss, backward and update; or forward and copy out.

    The model must be on ``device`` already. ``optimizer`` is needed in train mode; steps of several batch sizes may
    share one. ``prepare`` sets the model's mode, outside of what is timed.
    """

    def __init__(self, workload: Workload, device: str, optimizer: torch.optim.Optimizer | None = None) -> None:
        self.model = cast(nn.Module, workload.target)
        self.training = workload.mode == "train"
        self.device = torch.device(device)
        self.optimizer = optimizer
        self.loss = workload.loss or default_loss
        self.pinned = workload.data == "pinned" and self.device.type != "cpu"
        batch: Any = (workload.args, workload.kwargs)
        if workload.data == "device":
            batch = move(batch, self.device)
        elif self.pinned:
            batch = map_nest(lambda leaf: leaf.pin_memory(), batch)
        self.batch = batch
        self._cpu = torch.device("cpu")
        # A batch that is there already is not looked through every time: that would be the harness, not the step.
        self._stays = self.device.type == "cpu" or workload.data == "device"
        self._brings_back = self.device.type != "cpu"

    def prepare(self) -> None:
        self.model.train(self.training)

    def __call__(self) -> None:
        # Few calls of its own: of a step of five microseconds each would be a hundredth.
        args, kwargs = self.batch if self._stays else move(self.batch, self.device, non_blocking=self.pinned)
        if self.training:
            self._train(args, kwargs)
            return
        with torch.no_grad():
            output = self.model(*args, **kwargs)
        if self._brings_back:
            for tensor in tensors(output):
                tensor.to(self._cpu)

    def _train(self, args: Any, kwargs: Any) -> None:
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        self.loss(self.model(*args, **kwargs)).backward()
        self.optimizer.step()
