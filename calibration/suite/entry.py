"""What one network of the validation suite is, and the losses that their steps end in.

A loss makes its own target, so that a cell's input stays the model's input; ``Supervised`` takes targets among them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.workload import Data

Mode = Literal["train", "infer"]


@dataclass(frozen=True)
class Entry:
    """A network, the inputs to run it on, and the cells (batch x mode) it is validated in.

    ``build()`` makes the model on the CPU; ``example(batch)`` the real CPU tensors of one step, as ``example=`` of
    ``placer.choose`` takes them. What a batch counts (rows, images, sequences, graph nodes) is the family's own habit.
    """

    name: str
    family: str
    build: Callable[[], nn.Module]
    example: Callable[[int], Any]
    batches: tuple[int, ...]
    modes: tuple[Mode, ...] = ("train", "infer")
    optimizer: str = "adam"
    #: Of the model's output; a sum over floating outputs when None.
    loss: Callable[[Any], Any] | None = None
    #: Import names of packages that torch alone does not bring.
    needs: tuple[str, ...] = ()
    #: Where its batches live; None: where the run says, on the host if it says nothing.
    data: Data | None = None
    #: The dtype of mixed precision, as ``torch.autocast`` takes it; None: none.
    autocast: torch.dtype | None = None

    def missing(self) -> tuple[str, ...]:
        """The packages this entry needs that are not installed. Imports nothing."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)


def of_transformers(model: str, config: str, **sizes: Any) -> nn.Module:
    """A network of transformers by the names of its class and of its configuration's, with random weights."""
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**sizes))


def randn(*shape: int) -> Callable[[int], Tensor]:
    """Examples of shape (batch, *shape)."""
    return lambda n: torch.randn(n, *shape)


class Supervised(nn.Module):
    """``model(inputs)`` compared with ``targets`` by ``criterion``: the output is the loss, a scalar.

    With the target among the inputs its copy to the device is part of the step, as it is in a real training loop.
    """

    def __init__(self, model: nn.Module, criterion: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.criterion(self.model(inputs), targets)


def own_loss(output: Tensor) -> Tensor:
    """``loss=`` of a model that returns its loss."""
    return output


def loss_inside(output: Any) -> Tensor:
    """``loss=`` of a model of transformers that was given labels."""
    return output.loss


def cross_entropy(logits: Tensor) -> Tensor:
    """Classes on dimension 1."""
    target = torch.zeros(logits.shape[:1] + logits.shape[2:], dtype=torch.int64, device=logits.device)
    return F.cross_entropy(logits, target)


def label_loss(output: Any) -> Tensor:
    """Cross entropy of a classifier of transformers."""
    return cross_entropy(output.logits)


def negative_log_likelihood(output: Tensor) -> Tensor:
    """Of log probabilities, as PyTorch's MNIST example trains."""
    return F.nll_loss(output, torch.zeros(output.shape[0], dtype=torch.int64, device=output.device))


def mean_squared(output: Tensor) -> Tensor:
    """Against zeros."""
    return F.mse_loss(output, torch.zeros_like(output))


def binary(logits: Tensor) -> Tensor:
    """Against zeros, from logits."""
    return F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits))
