"""The objects a function can reach: modules and optimizers it closes over, and tensors beside them."""

from __future__ import annotations

import functools
import sysconfig
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

_ATOMS = (str, bytes, int, float, complex, type(None), type, types.ModuleType, torch.dtype, torch.device)
_CONTAINERS = (dict, OrderedDict, defaultdict, list, tuple, set, deque)
#: A longer container is not searched (a replay buffer, not a list of modules).
_LONGEST = 10_000
#: The walk ends after this many objects.
_OBJECTS = 100_000
#: Functions in these folders do not know the user's globals.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


class Reachable:
    """Walks from a function through closures, globals it names, what it is bound to, containers and objects.

    ``modules`` maps names to modules, without those that are part of another. ``tensors`` are all others than the
    modules' parameters and buffers.
    """

    def __init__(self, **roots: Any) -> None:
        self.modules: dict[str, nn.Module] = {}
        self.optimizers: list[torch.optim.Optimizer] = []
        self.tensors: list[Tensor] = []
        self._seen: dict[int, Any] = {}
        stack: list[tuple[Any, str]] = [(value, name) for name, value in reversed(roots.items())]
        while stack and len(self._seen) < _OBJECTS:
            value, name = stack.pop()
            if not isinstance(value, _ATOMS) and id(value) not in self._seen:
                self._seen[id(value)] = value
                stack.extend(reversed(list(self._inside(value, name))))
        parts = {id(m) for root in self.modules.values() for m in root.modules() if m is not root}
        self.modules = {name: root for name, root in self.modules.items() if id(root) not in parts}

    def _inside(self, value: Any, name: str) -> Iterable[tuple[Any, str]]:
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return ()
        if isinstance(value, nn.Module):
            return self._module(value, name)
        if isinstance(value, torch.optim.Optimizer):
            self.optimizers.append(value)
        if isinstance(value, _CONTAINERS):
            items = value.values() if isinstance(value, dict) else value
            return [(item, name) for item in items] if len(value) <= _LONGEST else ()
        if isinstance(value, functools.partial):
            return [(v, name) for v in (value.func, *value.args, *value.keywords.values())]
        if isinstance(value, types.MethodType):
            return [(value.__self__, name), (value.__func__, name)]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        return self._object(value, name) if isinstance(getattr(value, "__dict__", None), dict) else ()

    def _module(self, module: nn.Module, name: str) -> Iterator[tuple[Any, str]]:
        taken = self.modules
        self.modules[next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in taken)] = module
        for part in module.modules():
            self._seen[id(part)] = part
            for tensor in (*part._parameters.values(), *part._buffers.values()):
                self._seen[id(tensor)] = tensor
            if not isinstance(part, torch.jit.ScriptModule):
                yield from ((item, key) for key, item in part.__dict__.items())

    def _function(self, function: types.FunctionType) -> Iterator[tuple[Any, str]]:
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield cell.cell_contents, name
            except ValueError:  # not bound yet
                continue
        if not code.co_filename.startswith(_LIBRARIES):
            names = function.__globals__
            yield from ((names[name], name) for name in dict.fromkeys(_names(code)) if name in names)
        yield function.__defaults__, function.__name__
        yield function.__kwdefaults__, function.__name__

    def _object(self, value: Any, name: str) -> Iterator[tuple[Any, str]]:
        yield from ((item, key) for key, item in value.__dict__.items())
        call = getattr(type(value), "__call__", None)  # noqa: B004 - the function itself is wanted
        if isinstance(call, types.FunctionType):
            yield call, name


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that a function, and the functions inside it, may look up among their globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
