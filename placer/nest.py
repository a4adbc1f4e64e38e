"""Nested containers of tensors: walk them, map over them.

A *nest* is what models and loaders pass around: a tensor, or any nesting of dicts, lists, tuples, named tuples and
dataclasses around tensors. An object with a ``.to`` method (a ``PackedSequence``, a graph batch, a tokenizer's output)
counts as one leaf for ``map_nest`` and is looked into by ``tensors``.
"""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader, Dataset

#: How deep ``tensors`` looks into containers and unknown objects: a nest is a shallow thing.
MAX_DEPTH = 12
#: Holds no tensor of a batch, or those of all batches.
_ATOMS = (str, bytes, int, float, complex, type(None), type, torch.nn.Module, types.FunctionType, types.MethodType,
          types.BuiltinFunctionType, types.ModuleType, torch.dtype, torch.device, DataLoader, Dataset)  # fmt: skip


def is_namedtuple(value: object) -> bool:
    """A tuple whose fields have names, which is built from its items one by one."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_dataclass_instance(value: object) -> bool:
    """An instance, not the class itself."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def map_nest(function: Callable[[Any], Any], value: Any) -> Any:
    """``value`` with ``function`` applied to every tensor and every object that has ``.to``; all else stays as it is.

    Containers are rebuilt only when something inside them changed: a nest without tensors comes back as is.
    """
    if isinstance(value, (Tensor, PackedSequence, torch.nn.Module)):
        return function(value)
    if isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        return value
    if is_namedtuple(value):
        items = [map_nest(function, item) for item in value]
        return value if _same(items, value) else type(value)(*items)
    if isinstance(value, (tuple, list)):
        items = [map_nest(function, item) for item in value]
        if _same(items, value):
            return value
        return items if type(value) is list else type(value)(items)
    if callable(getattr(value, "to", None)) and not isinstance(value, type):
        return function(value)
    if isinstance(value, Mapping):
        mapped = {key: map_nest(function, item) for key, item in value.items()}
        if _same(list(mapped.values()), list(value.values())):
            return value
        return mapped if type(value) is dict else _rebuilt_mapping(value, mapped)
    if is_dataclass_instance(value):
        return _rebuilt_dataclass(function, value)
    return value


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in a nest, in a fixed order; unknown objects are searched through their attributes.

    A container or object that is met again is not searched again.
    """
    met: dict[int, Any] = {}  # with the objects themselves: the identity of one that is gone may be another's
    ahead = [(value, MAX_DEPTH)]
    while ahead:
        item, depth = ahead.pop()
        if isinstance(item, Tensor):
            yield item
        elif depth > 0 and not isinstance(item, _ATOMS) and id(item) not in met:
            met[id(item)] = item
            ahead += [(child, depth - 1) for child in reversed(_children(item))]


def distinct(value: Any) -> list[Tensor]:
    """Every tensor in a nest once."""
    return list({id(tensor): tensor for tensor in tensors(value)}.values())


def _children(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)
    if is_dataclass_instance(value):  # which may have slots
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return list(getattr(value, "__dict__", {}).values())


def _same(new: list[Any], old: Any) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


def _rebuilt_mapping(value: Mapping[Any, Any], mapped: dict[Any, Any]) -> Any:
    """The same type of mapping with the new values: a defaultdict or an OrderedDict keeps what else it carries."""
    copier = getattr(value, "copy", None)
    if isinstance(value, dict) or callable(copier):
        # copy.copy keeps attributes too: a state_dict carries its format in one.
        clone = copy.copy(value) if copier is None or isinstance(value, dict) else copier()
        if type(clone) is type(value) and hasattr(clone, "__setitem__"):
            for key, item in mapped.items():
                clone[key] = item
            return clone
    return type(value)(mapped)  # type: ignore[call-arg]


def _rebuilt_dataclass(function: Callable[[Any], Any], value: Any) -> Any:
    """A shallow copy with mapped fields; ``dataclasses.replace`` would rerun ``__post_init__``."""
    changed = {}
    for spec in dataclasses.fields(value):
        if not hasattr(value, spec.name):
            continue
        old = getattr(value, spec.name)
        new = map_nest(function, old)
        if new is not old:
            changed[spec.name] = new
    if not changed:
        return value
    clone = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(clone, name, new)  # works for frozen dataclasses too
    return clone
