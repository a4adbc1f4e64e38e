"""Models that must not be moved: their parts only run, or are only known to their partners, where they are."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

#: Modules around a model that spread it over processes, by the module of torch that defines them.
_DISTRIBUTED = ("torch.nn.parallel.distributed", "torch.distributed.")
_QUANTIZED = ("torch.ao.nn.quantized", "torch.nn.quantized", "torch.ao.nn.intrinsic.quantized")


def anchor(modules: Iterable[nn.Module]) -> tuple[str, str] | None:
    """The device to which a model is bound, and why; None for one that can be moved."""
    looked_at: set[type[nn.Module]] = set()
    for module in modules:
        for part in module.modules():
            kind = type(part)
            if kind in looked_at:
                continue
            looked_at.add(kind)
            home = kind.__module__
            if home.startswith(_QUANTIZED):
                return "cpu", f"{kind.__name__} is quantized for the CPU"
            if home.startswith(_DISTRIBUTED) or _sharded(kind):
                return _device(part), f"{kind.__name__} is wrapped for distributed training already: choose before that"
        if _has_distributed_tensors(module):
            return _device(module), "its parameters are sharded over processes already: choose before that"
    return None


def _sharded(kind: type[nn.Module]) -> bool:
    """``fully_shard`` changes the class of a module into one that inherits from its mixin."""
    return any(base.__module__.startswith("torch.distributed.fsdp") for base in kind.__mro__)


def _has_distributed_tensors(module: nn.Module) -> bool:
    tensors: Any = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and any(isinstance(p, tensors.DTensor) for p in module.parameters())


def _device(module: nn.Module) -> str:
    first = next(module.parameters(), None)
    device = torch.device("cpu") if first is None else first.device
    return device.type if device.index in (None, 0) else f"{device.type}:{device.index}"
