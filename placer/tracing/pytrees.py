"""Nests of tensors (pytrees), as models take and return them: finds their tensors, and copies them converted.

Unlike ``placer.nest``, a tensor that occurs twice counts once, and is shared in the copy as well.
"""

from __future__ import annotations

import copy
import dataclasses
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, weakref.ref)
_ATOMS = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device)


def tensors(nest: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """The distinct tensors of a nest, depth first."""
    seen = set() if seen is None else seen
    if isinstance(nest, _ATOMS) or id(nest) in seen:
        return
    seen.add(id(nest))
    if isinstance(nest, Tensor):
        yield nest
    elif isinstance(nest, Mapping):
        for value in nest.values():
            yield from tensors(value, seen)
    elif isinstance(nest, (list, tuple, set, frozenset)):
        for value in nest:
            yield from tensors(value, seen)
    elif isinstance(nest, (torch.nn.Module, type, *_CODE)):
        return
    elif hasattr(nest, "__dict__"):
        yield from tensors(vars(nest), seen)
    elif dataclasses.is_dataclass(nest):
        for field in dataclasses.fields(nest):
            yield from tensors(getattr(nest, field.name), seen)


def map_tensors(nest: Any, convert: Callable[[Tensor], Tensor], memo: dict[int, Any]) -> Any:
    """A copy of the nest with every tensor converted; a part without tensors is not copied.

    ``memo`` maps ids of objects already converted, so that shared tensors stay shared.
    """
    if isinstance(nest, _ATOMS):
        return nest
    if id(nest) in memo:
        return memo[id(nest)]
    result: Any
    if isinstance(nest, Tensor):
        result = convert(nest)
    elif isinstance(nest, PackedSequence):
        # The lengths stay on the CPU: recurrent layers read them there on every device.
        result = PackedSequence(convert(nest.data), nest.batch_sizes, nest.sorted_indices, nest.unsorted_indices)
    elif isinstance(nest, tuple):
        items = [map_tensors(value, convert, memo) for value in nest]
        result = type(nest)(*items) if hasattr(nest, "_fields") else type(nest)(items)
    elif isinstance(nest, list):
        result = [map_tensors(value, convert, memo) for value in nest]
    elif type(nest) is dict:
        result = {key: map_tensors(value, convert, memo) for key, value in nest.items()}
    elif next(tensors(nest), None) is None:
        return nest
    else:
        result = _map_object(nest, convert, memo)
    memo[id(nest)] = result
    return result


class _MoveConverts(TorchFunctionMode):
    """Makes ``.to(device)`` of a tensor give its conversion."""

    def __init__(self, convert: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.convert = convert

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.convert(args[0]) if func is Tensor.to else func(*args, **(kwargs or {}))


def _map_object(nest: Any, convert: Callable[[Tensor], Tensor], memo: dict[int, Any]) -> Any:
    """Convert dataclasses, mapping-likes and graph batches by their own ``.to``, or else attribute by attribute."""
    result = copy.copy(nest)
    if callable(getattr(result, "to", None)):
        with _MoveConverts(lambda tensor: map_tensors(tensor, convert, memo)):
            moved = result.to("meta")
        if {id(t) for t in tensors(moved)}.isdisjoint({id(t) for t in tensors(nest)}):
            return moved
    if isinstance(nest, dict):
        for key, value in nest.items():
            dict.__setitem__(result, key, map_tensors(value, convert, memo))
    attributes = getattr(result, "__dict__", {})
    for name, value in list(attributes.items()):
        mapped = map_tensors(value, convert, memo)
        if mapped is not value:
            attributes[name] = mapped
    if not attributes and dataclasses.is_dataclass(nest):  # slots
        for field in dataclasses.fields(nest):
            object.__setattr__(result, field.name, map_tensors(getattr(nest, field.name), convert, memo))
    return result
