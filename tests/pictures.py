"""Pictures of models and optimizers, to compare before and after: every bit, and every switch."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as module_globals


def picture(*watched: Any) -> dict[str, Any]:
    """All there is to see of modules, optimizers, schedulers and lists, and of the process."""
    found: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": repr(np.random.get_state()),  # noqa: NPY002
        "grad_mode": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "hooks of all modules": (
            len(module_globals._global_forward_hooks),
            len(module_globals._global_forward_pre_hooks),
        ),
        "functions": (torch.autograd.backward, torch.autograd.grad, nn.Module.__call__, __import__),
    }
    for index, value in enumerate(watched):
        for key, item in _seen(value).items():
            found[f"{type(value).__name__} {index}: {key}"] = item
    return found


def _seen(value: Any) -> dict[str, Any]:
    if isinstance(value, nn.Module):
        named = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        tensors = {k: v for k, v in named.items() if not nn.parameter.is_lazy(v)}
        return {
            "lazy": {k: (id(v), type(v)) for k, v in named.items() if nn.parameter.is_lazy(v)},
            "state": {k: v.detach().clone() for k, v in tensors.items()},
            "grads": {k: None if v.grad is None else (id(v.grad), v.grad.clone()) for k, v in tensors.items()},
            "versions": {k: v._version for k, v in tensors.items()},
            "identity": {k: (id(v), v.data_ptr(), v.stride()) for k, v in tensors.items()},
            "wanted": {k: v.requires_grad for k, v in tensors.items()},
            "flags": {k: getattr(m, "training", None) for k, m in value.named_modules()},
            "classes": {k: type(m) for k, m in value.named_modules()},
            "hooks": {k: (list(m._forward_hooks), list(m._forward_pre_hooks)) for k, m in value.named_modules()},
            "tensor hooks": {k: (v._backward_hooks, v._post_accumulate_grad_hooks) for k, v in tensors.items()},
            "attributes": {k: sorted(vars(m)) for k, m in value.named_modules()},
        }
    if isinstance(value, torch.optim.Optimizer):
        return {"state": copy.deepcopy(value.state_dict()), "attributes": sorted(vars(value))}
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        return {"state": copy.deepcopy(value.state_dict())}
    return {"content": list(value)}


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit."""
    if isinstance(a, Tensor):
        return torch.equal(a.to_dense(), b.to_dense())  # torch compares no sparse ones
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What differs between two pictures."""
    return [key for key in before if not same(before[key], after[key])]
