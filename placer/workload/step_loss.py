"""The loss of a training step: what a trace and a real step both differentiate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from placer.nest import distinct


def loss_of(output: Any, loss: Callable[..., Any] | None) -> Tensor | None:
    """``loss(output)``; without a ``loss``, the model's own (``output.loss``), else the sum of its floating outputs.

    None where nothing requires a gradient.
    """
    found = _own_loss(output) if loss is None else loss(output)
    return found if isinstance(found, Tensor) and found.requires_grad else None


def _own_loss(output: Any) -> Tensor | None:
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, Tensor) and own.is_floating_point() and own.dim() == 0:
        return own
    kept = [t for t in distinct(output) if t.requires_grad]  # none but floating and complex ones can
    sums = [(t.real if t.is_complex() else t).sum() for t in kept]
    return reduce(torch.add, sums) if sums else None
