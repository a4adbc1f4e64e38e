"""Pinned host memory: ordinary memory that is remembered to be pinned."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

_pinned: set[int] = set()


def is_pinned(tensor: Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() in _pinned


def _pin(tensor: Tensor, device: Any = None) -> Tensor:
    result = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)
    address = result.untyped_storage().data_ptr()
    _pinned.add(address)
    weakref.finalize(result, _pinned.discard, address)
    return result


def register(library: torch.library.Library) -> None:
    library.impl("is_pinned", lambda tensor, device=None: is_pinned(tensor), "CPU")
    library.impl("_pin_memory", _pin, "CPU")
