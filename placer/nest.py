"""Nested containers of tensors: walk them, map over them.

A *nest* is what models and loaders pass around: a tensor, or any nesting of dicts, lists, tuples, named tuples, sets,
deques and dataclasses around tensors. Its *leaves* are what ``.to(device)`` moves: tensors, and all that moves itself
as they do (a module, a ``PackedSequence``, a graph batch, a tokenizer's output), which ``tensors`` looks into.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import types
import weakref
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

#: How deep ``tensors`` looks into the attributes of unknown objects: what holds a batch is a shallow thing.
MAX_DEPTH = 12
#: Holds no tensor of a batch, or those of all batches. What a proxy stands for may be gone, so it comes first: asking
#: for its class would raise.
_ATOMS = (
    weakref.ProxyType, weakref.CallableProxyType, str, bytes, int, float, complex, type(None), type, types.FunctionType,
    types.MethodType, types.BuiltinFunctionType, types.ModuleType, torch.dtype, torch.device, torch.UntypedStorage,
    torch.TypedStorage, DataLoader, Dataset,
)  # fmt: skip
_UNCHANGEABLE = (tuple, frozenset)
_SEQUENCES = (*_UNCHANGEABLE, list, UserList, deque, set)


def is_namedtuple(value: object) -> bool:
    """A tuple whose fields have names, which is built from its items one by one."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def map_nest(function: Callable[[Any], Any], value: Any) -> Any:
    """``value`` with ``function`` applied to every leaf; all else stays as it is.

    Containers are rebuilt only when something inside them changed: a nest without leaves comes back as is. One that is
    within itself is rebuilt as such, and one that cannot be copied stays as it is.
    """
    walk = _Walk(function)
    mapped = walk.mapped(value)
    return mapped if walk.changed else value


def leaves(value: Any) -> list[Any]:
    """What ``map_nest`` applies its function to, in that order."""
    met: list[Any] = []

    def note(leaf: Any) -> Any:
        met.append(leaf)
        return leaf

    map_nest(note, value)
    return met


def tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in a nest, in a fixed order; unknown objects are searched through their attributes.

    A container or object that is met again is not searched again.
    """
    met: dict[int, Any] = {}  # with the objects themselves: the identity of one that is gone may be another's
    ahead = [(value, MAX_DEPTH)]
    while ahead:
        item, depth = ahead.pop()
        if isinstance(item, (*_ATOMS, nn.Module)) or id(item) in met:
            continue
        if isinstance(item, Tensor):
            yield item
            continue
        met[id(item)] = item
        items = _items(item)
        if items is not None:
            ahead += [(child, depth) for child in reversed(items)]
        elif depth > 0:
            ahead += [(child, depth - 1) for child in reversed(_attributes(item))]


def distinct(value: Any) -> list[Tensor]:
    """Every tensor in a nest once."""
    return list({id(tensor): tensor for tensor in tensors(value)}.values())


def moves_itself(value: Any) -> bool:
    """Whether ``value.to(device)`` means what it means for a tensor, as libraries of torch have it.

    Its ``to`` takes a device, and it holds tensors or says which device it is on. That of a physical quantity takes a
    unit, that of a time a zone: nobody calls those here.
    """
    if isinstance(value, _ATOMS):
        return False
    if isinstance(value, (Tensor, nn.Module)):
        return True
    kind: Any = type(value)
    if not _takes_device(kind):
        return False
    return next(tensors(value), None) is not None or isinstance(getattr(value, "device", None), torch.device)


@functools.lru_cache(maxsize=1024)
def _takes_device(kind: type) -> bool:
    """Whether objects of a class have a method ``to`` with a device for its first argument, or with any arguments."""
    method = getattr(kind, "to", None)
    if not callable(method):
        return False
    try:
        parameters = list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):  # no signature can be read of what is written in C
        return True
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters[:2]):
        return True
    if len(parameters) < 2 or parameters[1].kind is inspect.Parameter.KEYWORD_ONLY:
        return False
    words = f"{parameters[1].name} {parameters[1].annotation}".lower()
    return "dev" in words or "torch" in words


def _items(value: Any) -> list[Any] | None:
    """What is in a container, in its order; None for anything else."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, _SEQUENCES):
        return list(value)
    if dataclasses.is_dataclass(value):  # which may have slots
        return [getattr(value, name) for name in _fields(value)]
    return None


def _fields(value: Any) -> list[str]:
    """The fields of a dataclass instance that have a value."""
    return [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]


def _attributes(value: Any) -> list[Any]:
    """What an object holds under names, in slots too."""
    held = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else tuple(slots)
        held += [getattr(value, name) for name in names if not name.startswith("__") and hasattr(value, name)]
    return held


class _Walk:
    """One walk of ``map_nest`` through a nest. ``changed`` tells whether a leaf became another object."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.changed = False
        #: The containers that the walk is in, by identity, each with the copy that stands for it within itself.
        self._copies: dict[int, Any] = {}

    def mapped(self, value: Any) -> Any:
        """``value`` itself where nothing in it changed."""
        if moves_itself(value):
            leaf = self.function(value)
            self.changed = self.changed or leaf is not value
            return leaf
        items = None if isinstance(value, _ATOMS) else _items(value)
        if items is None:
            return value
        if id(value) in self._copies:  # it is within itself; a tuple stays as it is there
            if self._copies[id(value)] is None and not isinstance(value, _UNCHANGEABLE):
                self._copies[id(value)] = _shallow_copy(value)
            clone = self._copies[id(value)]
            return value if clone is None else clone
        self._copies[id(value)] = None
        try:
            new = [self.mapped(item) for item in items]
        finally:
            clone = self._copies.pop(id(value))
        if clone is None and all(a is b for a, b in zip(new, items, strict=True)):
            return value
        try:
            return _rebuilt(value, new, clone)
        except Exception:  # noqa: BLE001 - boundary: only its author can make another one of a class like that
            return value


def _shallow_copy(value: Any) -> Any:
    """Another container like ``value`` to write other content to; None where there can be none."""
    if isinstance(value, Mapping) and not isinstance(value, (dict, UserDict)):
        # What holds its content in an attribute would share it with a copy by ``copy.copy``.
        copied = getattr(value, "copy", None)
        clone = copied() if callable(copied) else None
        return clone if type(clone) is type(value) and hasattr(clone, "__setitem__") else None
    if isinstance(value, set):  # whose copy its class would make, from what it may not take
        return _with_attributes(set.__new__(type(value)), value)
    if isinstance(value, deque):
        clone = deque.__new__(type(value))
        deque.__init__(clone, value, value.maxlen)
        return _with_attributes(clone, value)
    return copy.copy(value)  # keeps attributes too: a state_dict carries its format in one


def _rebuilt(value: Any, items: list[Any], clone: Any) -> Any:
    """The same kind of container with other ``items``: in ``clone`` if there is one already.

    No ``__init__``, ``__new__`` or ``__post_init__`` of its own is run.
    """
    kind = type(value)
    if isinstance(value, _UNCHANGEABLE):
        if kind in _UNCHANGEABLE or hasattr(kind, "n_sequence_fields"):  # what torch.max returns is written in C
            return kind(items)
        base = tuple if isinstance(value, tuple) else frozenset
        return _with_attributes(base.__new__(kind, items), value)
    if clone is None:
        clone = _shallow_copy(value)
    if isinstance(value, Mapping):
        mapped = dict(zip(value, items, strict=True))
        if clone is None:
            return kind(mapped)
        for key, item in mapped.items():
            clone[key] = item
    elif isinstance(value, set):
        clone.clear()
        clone.update(items)
    elif isinstance(value, _SEQUENCES):
        for index, item in enumerate(items):
            clone[index] = item
    else:
        for name, item in zip(_fields(value), items, strict=True):
            if item is not getattr(clone, name):
                object.__setattr__(clone, name, item)  # works for frozen dataclasses too
    return clone


def _with_attributes(made: Any, value: Any) -> Any:
    """``made``, of the class of ``value``, with the attributes that ``value`` has."""
    if hasattr(value, "__dict__"):
        vars(made).update(vars(value))
    return made
