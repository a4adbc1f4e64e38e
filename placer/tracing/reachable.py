"""The objects a step function can reach: modules and optimizers it closes over, and where they are bound."""

from __future__ import annotations

import functools
import sysconfig
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from placer.tracing.copies import check_initialized
from placer.tracing.undo import CONTAINERS, Undo

_ATOMS = (str, bytes, int, float, complex, type(None), type, types.ModuleType, torch.dtype, torch.device)
#: A longer container is not searched (a replay buffer, not a list of modules).
_LONGEST = 10_000
#: The walk ends after this many objects.
_OBJECTS = 100_000
#: Functions in these folders do not know the user's globals.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_EMPTY = object()


class Reachable:
    """Walks from a function through closures, globals it names, what it is bound to, containers and objects.

    ``undo`` protects what the walk finds: parameters and buffers with their values, other tensors when they are
    written. ``modules`` maps names to modules, without those that are part of another.
    """

    def __init__(self, undo: Undo) -> None:
        self.undo = undo
        self.modules: dict[str, nn.Module] = {}
        self.optimizers: list[torch.optim.Optimizer] = []
        self._seen: dict[int, Any] = {}

    def add(self, value: Any, name: str) -> None:
        """Walk from ``value``.

        ``undo`` restores the contents of containers that the function itself, a module or an optimizer holds. It leaves
        alone what objects of other classes hold: restoring half of an iterator's state is worse than nothing.
        """
        stack: list[tuple[Any, str, bool]] = [(value, name, True)]
        while stack and len(self._seen) < _OBJECTS:
            value, name, owned = stack.pop()
            if not isinstance(value, _ATOMS) and id(value) not in self._seen:
                self._seen[id(value)] = value
                stack.extend(reversed(list(self._inside(value, name, owned))))
        parts = {id(m) for root in self.modules.values() for m in root.modules() if m is not root}
        self.modules = {name: root for name, root in self.modules.items() if id(root) not in parts}

    def _inside(self, value: Any, name: str, owned: bool) -> Iterable[tuple[Any, str, bool]]:
        if isinstance(value, Tensor):
            if value.is_leaf and value.requires_grad:
                self.undo.tensor(value)
            return ()
        if isinstance(value, nn.Module):
            return self._module(value, name)
        if isinstance(value, torch.optim.Optimizer):
            self.optimizers.append(value)
            return self._attributes(value, True)
        if isinstance(value, (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)):
            return self._attributes(value, True)
        if isinstance(value, (*CONTAINERS, tuple)):
            if owned:
                self.undo.container(value)
            items = value.values() if isinstance(value, dict) else value
            return [(item, name, owned) for item in items] if len(value) <= _LONGEST else ()
        if isinstance(value, functools.partial):
            return [(v, name, owned) for v in (value.func, *value.args, *value.keywords.values())]
        if isinstance(value, types.MethodType):
            return [(value.__self__, name, owned), (value.__func__, name, owned)]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        return self._object(value, name) if isinstance(getattr(value, "__dict__", None), dict) else ()

    def _module(self, module: nn.Module, name: str) -> Iterator[tuple[Any, str, bool]]:
        taken = self.modules
        self.modules[next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in taken)] = module
        for part in module.modules():
            self._seen[id(part)] = part
            for tensor in (*part._parameters.values(), *part._buffers.values()):
                if tensor is not None:
                    check_initialized(tensor)
                    self.undo.tensor(tensor)
            if not isinstance(part, torch.jit.ScriptModule):
                yield from self._attributes(part, True)

    def _attributes(self, value: Any, owned: bool) -> list[tuple[Any, str, bool]]:
        if owned:
            self.undo.container(value.__dict__)
        return [(item, name, owned) for name, item in value.__dict__.items()]

    def _function(self, function: types.FunctionType) -> Iterator[tuple[Any, str, bool]]:
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            held = _content(cell)
            self.undo.later(functools.partial(_fill, cell, held))
            yield held, name, True
        if not code.co_filename.startswith(_LIBRARIES):
            names = function.__globals__
            for name in dict.fromkeys(_names(code)):
                if name not in names:
                    continue
                self.undo.later(functools.partial(_rebind, names, {name: names[name]}))
                yield names[name], name, True
        yield function.__defaults__, function.__name__, True
        yield function.__kwdefaults__, function.__name__, True

    def _object(self, value: Any, name: str) -> Iterator[tuple[Any, str, bool]]:
        """An object of the user: ``undo`` binds the tensors it holds again, and the walk goes on with what it calls."""
        held = {key: item for key, item in value.__dict__.items() if isinstance(item, Tensor)}
        self.undo.later(functools.partial(_rebind, value.__dict__, held))
        yield from self._attributes(value, False)
        call = getattr(type(value), "__call__", None)  # noqa: B004 - the function itself is wanted
        if isinstance(call, types.FunctionType):
            yield call, name, False


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that a function, and the functions inside it, may look up among their globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return _EMPTY


def _fill(cell: types.CellType, content: Any) -> None:
    if content is _EMPTY:
        if _content(cell) is not _EMPTY:
            del cell.cell_contents
    elif _content(cell) is not content:
        cell.cell_contents = content


def _rebind(names: dict[str, Any], held: dict[str, Any]) -> None:
    for name, value in held.items():
        if names.get(name, _EMPTY) is not value:
            names[name] = value
