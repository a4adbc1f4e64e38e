"""A network together with its loss: a step that takes inputs and targets, as a training loop feeds them."""

from __future__ import annotations

from torch import Tensor, nn


class Supervised(nn.Module):
    """``model(inputs)`` compared with ``targets`` by ``criterion``: the output is the loss, a scalar.

    With the target among the inputs its copy to the device is part of the step, as it is in a real training loop.
    """

    def __init__(self, model: nn.Module, criterion: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = self.criterion(self.model(inputs), targets)
        return loss


def own_loss(output: Tensor) -> Tensor:
    """``loss=`` of an entry whose model returns its loss."""
    return output
