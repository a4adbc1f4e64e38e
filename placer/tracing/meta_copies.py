"""What a model looks like, without its values: a copy on the meta device, which keeps no memory of the original alive.

For a model that is priced when it may be gone. Small integer tensors keep their values, as they may steer the step.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TypeVar

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from placer.tracing.copies import Copies, unwrap
from placer.tracing.isolation import isolated
from placer.tracing.tensor_copies import meta_tensor

T = TypeVar("T")


def meta_model(model: nn.Module) -> nn.Module:
    """A copy of a model without values and without the user's hooks. Raises TraceError where it cannot be copied."""
    with isolated(), _disable_current_modes():
        return Copies(meta_tensor, meta_tensor).module(unwrap(model))


def meta_inputs(nest: T) -> T:
    """A copy of a nest of inputs without values."""
    with isolated(), _disable_current_modes():
        return Copies(meta_tensor, meta_tensor).inputs(nest)


def meta_optimizer(
    optimizer: torch.optim.Optimizer, model: nn.Module, copied: nn.Module
) -> torch.optim.Optimizer | None:
    """An optimizer of the same class and settings over its part of ``model``, in the copy; None where it has none.

    Without state, hooks, and the ``step`` that a scheduler wrapped: those would keep the original alive.
    """
    copies = {id(own): copy for own, copy in zip(unwrap(model).parameters(), copied.parameters(), strict=True)}
    groups = []
    for group in optimizer.param_groups:
        found = [copies[id(parameter)] for parameter in group["params"] if id(parameter) in copies]
        if found:
            groups.append({**group, "params": found})
    if not groups:
        return None
    clone = object.__new__(type(optimizer))
    for name, value in vars(optimizer).items():
        if name.startswith("_optimizer_") and isinstance(value, dict):
            clone.__dict__[name] = OrderedDict()
        elif name != "step":
            clone.__dict__[name] = value
    clone.param_groups, clone.state = groups, defaultdict(dict)
    return clone
