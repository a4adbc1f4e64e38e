"""Hashable keys, equal for things that cost the same: shapes, dtypes and switches count, the values of tensors do not.

An object that cannot be inspected gets a key that equals no other, not even its own next key: a cache miss costs a
trace, a false hit a wrong answer.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_SCALARS = (type(None), str, bytes, int, float, complex)
_TORCH_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
#: Levels of nesting that a signature tells apart.
_DEEPEST = 20
#: Optimizer options that change which kernels run.
_SWITCHES = (
    "foreach", "fused", "capturable", "amsgrad", "momentum", "nesterov", "weight_decay", "centered", "maximize",
)  # fmt: skip


def signature(value: Any) -> Hashable:
    """Types, shapes, strides and dtypes of any nest of tensors and plain values."""
    return _signature(value, ())


def _signature(value: Any, above: tuple[int, ...]) -> Hashable:
    if isinstance(value, Tensor):
        return tensor_signature(value)
    kind = type(value)
    if kind is dict or kind is tuple or kind is list:  # most values; what follows asks a dozen questions
        return _nest_signature(value, above)
    if isinstance(value, _SCALARS):
        return (type(value), value)
    if isinstance(value, (*_TORCH_VALUES, type)):
        return value
    if isinstance(value, nn.Module):
        return module_signature(value)
    if isinstance(value, _FUNCTIONS):
        return callable_signature(value)
    if isinstance(value, np.ndarray):
        return (np.ndarray, value.shape, value.dtype.str)
    if isinstance(value, weakref.ReferenceType):
        return weakref.ReferenceType
    if isinstance(value, (Mapping, tuple, list, set, frozenset)):
        return _nest_signature(value, above)
    if id(value) in above or len(above) > _DEEPEST:
        return "…"
    attributes = getattr(value, "__dict__", None)
    if attributes:
        inside = (*above, id(value))
        return (type(value), tuple([(key, _signature(item, inside)) for key, item in attributes.items()]))
    return object()


def _nest_signature(value: Any, above: tuple[int, ...]) -> Hashable:
    if id(value) in above or len(above) > _DEEPEST:
        return "…"
    inside = (*above, id(value))
    if isinstance(value, (dict, Mapping)):
        return (type(value), tuple([(_name(key), _signature(item, inside)) for key, item in value.items()]))
    items = [_signature(item, inside) for item in value]
    return (type(value), frozenset(items) if isinstance(value, (set, frozenset)) else tuple(items))


def tensor_signature(value: Tensor) -> Hashable:
    """The properties of a tensor that the cost of an op on it can depend on."""
    if is_lazy(value):
        return object()  # its shape is not known before the first batch
    if value.layout is not torch.strided or value.is_nested:
        return (type(value), value.layout, value.dtype, object() if value.is_nested else value.shape)
    return (type(value), value.shape, value.stride(), value.dtype, value.requires_grad)


def without_sizes(found: Hashable) -> tuple[Hashable, tuple[tuple[int, ...], ...]]:
    """A signature with ranks in place of the shapes of contiguous tensors, and these shapes in order."""
    shapes: list[tuple[int, ...]] = []

    def strip(part: Any) -> Any:
        if type(part) is not tuple:
            return part
        if len(part) == 5 and type(part[1]) is torch.Size:  # what tensor_signature gives
            kind, shape, stride, dtype, requires_grad = part
            if _row_major(shape, stride):
                shapes.append(tuple(shape))
                return kind, len(shape), dtype, requires_grad
            return part
        return tuple([strip(item) for item in part])

    return strip(found), tuple(shapes)


def _row_major(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether the strides follow from the shape, also where a size is 1."""
    expected = 1
    for n, s in zip(reversed(shape), reversed(stride), strict=True):
        if s != expected:
            return False
        expected *= max(n, 1)
    return True


def callable_signature(function: Callable[..., Any] | None) -> Hashable:
    """Equal for functions of the same code on the same kind of captured values, so a lambda written once is one key."""
    if function is None or isinstance(function, (types.BuiltinFunctionType, type)):
        return function
    if isinstance(function, nn.Module):
        return module_signature(function)
    if isinstance(function, functools.partial):
        return ("partial", callable_signature(function.func), signature(function.args), signature(function.keywords))
    if isinstance(function, types.FunctionType):
        cells = tuple(_cell(cell) for cell in function.__closure__ or ())
        return (function.__code__, cells, signature(function.__defaults__), signature(function.__kwdefaults__))
    return object()


def optimizer_signature(optimizer: str | torch.optim.Optimizer | None) -> Hashable:
    """The class, and per group the number of tensors and the switches that change which kernels run."""
    if optimizer is None or isinstance(optimizer, str):
        return optimizer
    groups = []
    for group in optimizer.param_groups:
        switches = tuple(bool(group[name]) if group.get(name) is not None else None for name in _SWITCHES)
        groups.append((len(group["params"]), switches))
    return (type(optimizer), tuple(groups))


def module_signature(model: nn.Module) -> Hashable:
    """The whole architecture: types, flags, plain attributes, parameters and buffers of every submodule, by name."""
    return tuple(
        (
            name,
            type(module),
            tuple((key, tensor_signature(p)) for key, p in module._parameters.items() if p is not None),
            tuple((key, tensor_signature(b)) for key, b in module._buffers.items() if b is not None),
            tuple(
                (key, _signature(value, (id(model), id(module))))
                for key, value in module.__dict__.items()
                if not key.startswith("_") and not isinstance(value, nn.Module)
            ),
            len(module._forward_hooks) + len(module._forward_pre_hooks),
        )
        for name, module in model.named_modules()
    )


def _cell(cell: types.CellType) -> Hashable:
    try:
        return signature(cell.cell_contents)
    except ValueError:  # an empty cell: the name is not bound yet
        return object()


def _name(key: object) -> Hashable:
    return key if isinstance(key, (str, int)) else str(key)
