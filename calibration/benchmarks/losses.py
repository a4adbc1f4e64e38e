"""What networks are trained by: losses of their outputs, each with a target made for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from placer.nest import tensors


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


def _cross_entropy(x: Tensor) -> Tensor:
    """Of the innermost dimension, as of classes or of the tokens of a vocabulary."""
    scores = x.flatten(0, -2) if x.dim() > 1 else x[None]
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=x.device))


#: Functions of an output that is one tensor.
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "mse": lambda x: F.mse_loss(x, torch.zeros_like(x)),
    "cross_entropy": _cross_entropy,
    "smooth_l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x)),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x)),
    "l1": lambda x: F.l1_loss(x, torch.zeros_like(x)),
}
#: The usual ones, as often as they are met; "" is the sum that stands for a loss nobody gave.
DRAWN = (*("", "mse", "cross_entropy") * 3, "smooth_l1", "bce", "huber", "l1")


def loss_named(name: str) -> Callable[[Any], Tensor] | None:
    """The loss of this name, of outputs of any kind: what is not one tensor is summed. None for "".

    Raises KeyError for an unknown name.
    """
    if not name:
        return None
    function = LOSSES[name]

    def loss(output: Any) -> Tensor:
        return function(output) if isinstance(output, Tensor) and output.dim() > 0 else default_loss(output)

    return loss
