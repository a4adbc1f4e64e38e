"""Checks ``batch_shape`` and ``example``, and makes the inputs of one step of them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from placer.nest import is_namedtuple, tensors


def make_inputs(batch_shape: Any, example: Any, model: Callable[..., Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of one step of ``model``, from ``batch_shape`` or from ``example``.

    A mapping is taken for keyword arguments, unless only the mapping itself is what the model takes.
    """
    if batch_shape is not None and example is not None:
        raise ValueError("give batch_shape or example, not both: an example already says its shapes and dtypes")
    if batch_shape is not None:
        return tuple(_shaped(shape, batch_shape) for shape in read_shapes(batch_shape)), {}
    if example is None or (isinstance(example, (tuple, list, Mapping)) and not example):
        if not isinstance(model, nn.Module) or _takes(model, (), {}):
            return (), {}
        raise ValueError("the input is missing: give batch_shape, like (32, 84), or example, a nest of tensors")
    if next(tensors(example), None) is None:
        raise TypeError(f"example must be a tensor or a nest of tensors; no tensor was found in {kind_of(example)}")
    if isinstance(example, tuple) and not is_namedtuple(example):
        return example, {}
    if isinstance(example, Mapping) and all(isinstance(key, str) for key in example):
        by_name = dict(example)
        if _takes(model, (), by_name) or not _takes(model, (example,), {}):
            return (), by_name
    return (example,), {}


def _takes(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call with these arguments is one that the signature of the model, or step, allows."""
    called = model.forward if isinstance(model, nn.Module) else model
    try:
        inspect.signature(called).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def _shaped(shape: tuple[int, ...], batch_shape: Any) -> Tensor:
    try:
        return torch.empty(shape, dtype=torch.float32, device="meta")
    except RuntimeError as error:
        raise ValueError(f"batch_shape {batch_shape!r} is larger than any tensor can be") from error


def read_shapes(batch_shape: Any) -> tuple[tuple[int, ...], ...]:
    """One shape, or a sequence of shapes, as a tuple of shapes. A size of 0 is allowed; an inner ``()`` is a scalar."""
    if isinstance(batch_shape, (str, bytes, Tensor)) or not isinstance(batch_shape, Sequence):
        raise TypeError(f"batch_shape must be a shape like (32, 84) or a sequence of shapes, not {batch_shape!r}")
    if len(batch_shape) == 0:
        raise ValueError("batch_shape is empty: give a shape like (32, 84) or a sequence of shapes")
    nested = [isinstance(item, Sequence) and not isinstance(item, (str, bytes)) for item in batch_shape]
    if all(nested):
        return tuple(tuple(_size(n, batch_shape) for n in shape) for shape in batch_shape)
    if any(nested):
        raise TypeError(f"batch_shape mixes sizes and shapes: {batch_shape!r}; give one shape or a sequence of shapes")
    return (tuple(_size(n, batch_shape) for n in batch_shape),)


def _size(n: Any, batch_shape: Any) -> int:
    if type(n) is not int:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"batch_shape must hold whole numbers, not {n!r} (in {batch_shape!r})")
        n = operator.index(n)
    if n < 0:
        raise ValueError(f"batch_shape must hold sizes of 0 or more, not {n} (in {batch_shape!r})")
    return int(n)


def kind_of(value: object) -> str:
    """The class of a value, as error messages name it."""
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
