"""The objects that a step can reach; and deep copies of workloads and models, for where no child can be forked."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import sysconfig
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from placer.errors import TraceError, first_line
from placer.tracing import values
from placer.tracing.isolation import isolated
from placer.workload import Workload, unwrap

T = TypeVar("T")

_ATOMS = (str, bytes, int, float, complex, type(None), type, types.ModuleType, torch.dtype, torch.device)
_CONTAINERS = (dict, list, tuple, set, deque)
#: A longer container is not searched (a replay buffer, not a list of modules).
_LONGEST = 10_000
#: The walk ends after this many objects.
_OBJECTS = 100_000
#: Functions in these folders do not know the user's globals.
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


class Reachable:
    """Walks from a function through closures, globals it names, what it is bound to, containers and objects.

    It goes by the types of objects, and calls no method of theirs: an object may say that it is of another class, or
    raise where it is asked.

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
            if type(value) in weakref.ProxyTypes:
                value = _referent(value)
            if not issubclass(type(value), _ATOMS) and id(value) not in self._seen:
                self._seen[id(value)] = value
                stack.extend(reversed(list(self._inside(value, name))))
        parts: set[int] = set()
        for root in self.modules.values():
            parts.update(id(module) for module in root.modules() if module is not root)
        self.modules = {name: root for name, root in self.modules.items() if id(root) not in parts}

    def _inside(self, value: Any, name: str) -> Iterable[tuple[Any, str]]:
        kind = type(value)
        if issubclass(kind, Tensor):
            self.tensors.append(value)
            return ()
        if issubclass(kind, nn.Module):
            return self._module(value, name)
        if issubclass(kind, torch.optim.Optimizer):
            self.optimizers.append(value)
        for container in _CONTAINERS:
            if issubclass(kind, container):
                return [(item, name) for item in _items(value, container)]
        if issubclass(kind, functools.partial):
            return [(v, name) for v in (value.func, *value.args, *value.keywords.values())]
        if issubclass(kind, types.MethodType):
            return [(value.__self__, name), (value.__func__, name)]
        if issubclass(kind, types.FunctionType):
            return self._function(value)
        attributes = _attributes(value)
        if attributes is None:
            return ()
        held = [(item, key) for key, item in attributes.items()]
        call = getattr(kind, "__call__", None)  # noqa: B004 - the function itself is wanted
        return [*held, (call, name)] if type(call) is types.FunctionType else held

    def _module(self, module: nn.Module, name: str) -> Iterator[tuple[Any, str]]:
        names = itertools.chain((name,), (f"{name}_{number}" for number in itertools.count(2)))
        self.modules[next(free for free in names if free not in self.modules)] = module
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


def _items(value: Any, container: type) -> list[Any]:
    """What is in an object of a subclass of ``container``; none where it is long."""
    if container.__len__(value) > _LONGEST:  # type: ignore[attr-defined]
        return []
    return list(dict.values(value) if container is dict else container.__iter__(value))  # type: ignore[attr-defined]


def _attributes(value: Any) -> dict[str, Any] | None:
    """A copy of an object's ``__dict__``, which another thread may change; None where it has none, or raises."""
    try:
        attributes = value.__dict__
    except Exception:  # noqa: BLE001 - the boundary to any object
        return None
    return dict.copy(attributes) if issubclass(type(attributes), dict) else None


def _referent(proxy: Any) -> Any:
    """What a proxy stands for; None where that is gone."""
    try:
        return proxy.__init__.__self__
    except Exception:  # noqa: BLE001 - the boundary to any object
        return None


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that a function, and the functions inside it, may look up among their globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


# --- deep copies ------------------------------------------------------------------------------------------------------

#: Where torch has the hooks of a module.
_HOOKS = tuple(name for name in vars(nn.Module()) if name.endswith("_hooks"))


def copied(workload: Workload, real: bool) -> Workload:
    """The workload on copies: with values, on the CPU, or without.

    Hooks that are not torch's own are left out: they may reach what is the user's. Raises TraceError where something
    refuses to be copied, and for a step function: what it closes over cannot be.
    """
    if workload.is_step_function:
        raise TraceError(
            "a step function can only be traced in a child process, and none can be forked here; give choose the model"
        )
    if real and workload.draw is not None:
        workload.draw()
    parts = (unwrap(workload.model), *workload.batch, workload.loss, workload.optimizer)
    model, args, kwargs, loss_target, loss, optimizer = _deep_copy(parts, real)
    _remove_hooks(model)
    return dataclasses.replace(
        workload,
        model=model,
        modules=(model,),
        args=args,
        kwargs=kwargs,
        loss=loss,
        loss_target=loss_target,
        optimizer=optimizer,
        draw=None,
    )


def meta_model(model: nn.Module) -> nn.Module:
    """A copy of a model without values and without the user's hooks, which keeps no memory of the original alive.

    Small integer tensors keep their values, as they may steer the step. Raises TraceError where it cannot be copied.
    """
    result: nn.Module = _deep_copy(unwrap(model), real=False)
    _remove_hooks(result)
    return result


def _deep_copy(original: T, real: bool) -> T:
    """A deep copy, with tensors with values or without. TraceError where something refuses to be copied."""
    try:
        with isolated(), torch.no_grad(), torch._C.DisableTorchFunction():
            reachable = Reachable(original=original)
            tensors = [*values.of_modules(reachable.modules.values()), *reachable.tensors]
            stand_ins = {id(tensor): _stand_in(tensor, real) for tensor in tensors}
        with isolated(), torch.no_grad():
            return copy.deepcopy(original, stand_ins)
    except Exception as error:  # the boundary to the copying of any object
        raise TraceError(f"the workload could not be copied: {type(error).__name__}: {first_line(error)}") from error


def _stand_in(tensor: Tensor, real: bool) -> Tensor:
    """A tensor of the same class, with the same attributes; one that may steer the step has values in any case."""
    if is_lazy(tensor) or tensor.is_meta:
        made = tensor.detach().clone() if real else values.meta_like(tensor)
    elif real or values.may_steer(tensor):
        made = tensor.detach().to("cpu", copy=True)
    else:
        made = values.meta_like(tensor)
    if isinstance(tensor, nn.Parameter) and not isinstance(made, nn.Parameter):
        made = nn.Parameter(made, requires_grad=tensor.requires_grad)
    elif tensor.requires_grad:
        made.requires_grad_()
    made.__dict__.update(tensor.__dict__)
    return made


def _remove_hooks(model: nn.Module) -> None:
    """Take every hook away that is not torch's own, such as those of spectral_norm, which are part of the model."""
    for module in model.modules():
        for name in _HOOKS:
            hooks = vars(module).get(name) or {}
            for key in [key for key, hook in hooks.items() if not _is_torchs_own(hook)]:
                del hooks[key]


def _is_torchs_own(hook: Any) -> bool:
    hook = getattr(hook, "func", hook)  # functools.partial
    hook = getattr(hook, "__self__", hook)
    name = getattr(hook, "__module__", None) or type(hook).__module__
    return name == "torch" or name.startswith("torch.")
