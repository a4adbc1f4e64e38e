"""Tells in microseconds whether a model object is unchanged, down to the attributes of its submodules.

Python gives every state of a dictionary a number that is unique in the process, and torch's compiler guards its code
with these numbers. The attributes, parameters, buffers and children of a module are dictionaries, so one number each
shows that nothing was set, replaced, added or removed. The compiler's tensor guard checks what changes in place inside
a parameter (dtype, device, shape, strides, ``requires_grad``). Buffers need none: torch itself only ever replaces
them. The model gets no hooks.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

# Not a public interface of torch: where it is missing, every look-up compares the whole architecture.
GUARDS: Any = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
dict_version: Any = getattr(GUARDS, "dict_version", None)

#: A model with more parts than this is not watched: every look-up compares the whole architecture.
MAX_PARTS = 50_000
#: Types of values that cannot change in place, or are taken as constant.
_FIXED = frozenset({
    type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format,
    torch.Size, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
})  # fmt: skip
_INNER = ("_modules", "_parameters", "_buffers")  # the last is not looked into: it holds nothing but buffers
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


@dataclass
class _Parts:
    """The parts of a model. ``empty`` and ``no_hooks`` only need to stay empty, which is a quicker check."""

    dicts: list[dict[Any, Any]] = field(default_factory=list)
    empty: list[dict[Any, Any]] = field(default_factory=list)
    no_hooks: list[dict[Any, Any]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    lists: list[list[Any] | set[Any]] = field(default_factory=list)


class Watch:
    """The state of a model object now, to compare with its state later.

    The watch holds the parts until the next garbage collection, so it never keeps a model alive; after that it gathers
    them again.
    """

    def __init__(self, model: nn.Module) -> None:
        self._hooks = -1
        self._tensors: Any = None
        self._parts = parts = _gather(model) if dict_version is not None else None
        if parts is None:
            return
        self._versions = list(map(dict_version, parts.dicts))
        self._sum = sum(self._versions)
        self._contents = list(map(_content, parts.lists))
        # A tensor without sizes has no guard: its model never counts as unchanged.
        with contextlib.suppress(RuntimeError):
            self._tensors = GUARDS.TensorGuards(*parts.tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
            _watches.add(self)

    def unchanged(self, model: nn.Module) -> bool:
        """Whether ``model``, the object given to the constructor, is unchanged since."""
        if self._tensors is None:
            return False
        parts = self._parts
        if parts is None:
            # Gathered anew: equal numbers mean the same dictionaries in the same state, as numbers are unique.
            parts = _gather(model)
            if parts is None or list(map(dict_version, parts.dicts)) != self._versions:
                return False
        hooks = RemovableHandle.next_id  # grows with every hook that is registered anywhere
        same = (
            # The number of a dictionary only grows, so an equal sum means that no dictionary changed.
            sum(map(dict_version, parts.dicts)) == self._sum
            and not any(parts.empty)
            and (hooks == self._hooks or not any(parts.no_hooks))
            and list(map(_content, parts.lists)) == self._contents
            and bool(self._tensors.check(*parts.tensors))
        )
        self._parts = parts if same else None
        self._hooks = hooks if same else -1
        return same

    def release(self) -> None:
        """Let go of the model's parts."""
        self._parts = None


_watches: weakref.WeakSet[Watch] = weakref.WeakSet()
#: Collections from this generation on reach old objects; from Python 3.14 on, all but the youngest reach some.
_WHOLE = 2 if sys.version_info < (3, 14) else 1


def _before_collection(phase: str, info: dict[str, Any]) -> None:
    """Release the parts: a held part of a model with a reference cycle would hide the cycle from the collector."""
    if phase == "start" and info.get("generation", _WHOLE) >= _WHOLE:
        for watch in list(_watches):
            watch.release()


gc.callbacks.append(_before_collection)


def _content(items: list[Any] | set[Any]) -> list[Any]:
    """Plain values, and the identity of all others: equal for the same content."""
    return [item if type(item) in _FIXED else id(item) for item in items]


def _gather(model: nn.Module) -> _Parts | None:
    """All parts of ``model`` by attributes, containers and children; None where they cannot all be found."""
    parts = _Parts()
    pending: list[Any] = [model]
    known: set[int] = set()
    while pending:
        value = pending.pop()
        if type(value) in _FIXED or id(value) in known:
            continue
        known.add(id(value))
        if len(known) > MAX_PARTS:
            return None
        if isinstance(value, Tensor):
            parts.tensors.append(value)
        elif isinstance(value, nn.Module):
            if not _add_module(value, parts, pending.extend):
                return None
        elif isinstance(value, dict):
            _add_dict(value, parts)
            pending.extend(value.values())
        elif isinstance(value, (list, set)):
            parts.lists.append(value)
            pending.extend(value)
        elif isinstance(value, (tuple, frozenset)):
            pending.extend(value)
        elif isinstance(attributes := getattr(value, "__dict__", None), dict) and not isinstance(value, type):
            _add_dict(attributes, parts)
            pending.extend(attributes.values())
    return parts


def _add_module(module: nn.Module, parts: _Parts, later: Callable[[Any], None]) -> bool:
    """Add the parts of a module. False for a module that keeps them elsewhere, as TorchScript modules do."""
    attributes = module.__dict__
    parts.dicts.append(attributes)
    for name in _INNER:
        inner = attributes.get(name)
        if not isinstance(inner, dict):
            return False
        (parts.dicts if inner else parts.empty).append(inner)
        if name != "_buffers":
            later(inner.values())
    for name in _HOOKS:
        (parts.dicts if attributes[name] else parts.no_hooks).append(attributes[name])
    # Attributes with a leading underscore are no part of an architecture (see signature.module_signature).
    later([value for key, value in attributes.items() if key[0] != "_" and type(value) not in _FIXED])
    return True


def _add_dict(found: dict[Any, Any], parts: _Parts) -> None:
    (parts.dicts if found else parts.empty).append(found)
