"""Specs of an op's outputs without running its meta kernel.

Meta kernels written in Python take 0.2 to 5 milliseconds each. Most ops of a network are elementwise, have a formula,
or repeat with equal shapes. A formula agrees with the real CPU kernel. It takes the tensor arguments (None where
absent) and the other arguments by name, and answers None when it does not cover the case. Without formulas tracing
ResNet-50 takes twice as long, and DenseNet-121 three times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from placer.tracing.layout import channels_last_strides, dense, dtype_name, elementwise_layout, make_spec, spec_of
from placer.tracing.operators import Operator
from placer.tracing.trace_data import TensorSpec

#: A spec per output; None for one that is not made.
Specs = tuple[TensorSpec | None, ...]
Slots = tuple[Any, ...]
Plain = dict[str, Any]
Formula = Callable[[Slots, Plain], Specs | None]


def _batch_norm(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[0]
    channels = image.shape[1:2]
    if not _is_image(image) or not _one_dtype(slots) or any(s is not None and s.shape != channels for s in slots[1:]):
        return None
    stats = dense((image.shape[1] if plain["training"] else 0,), image.dtype)
    return image, stats, stats


def _batch_norm_backward(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[1]
    if not _is_image(image) or not _one_dtype(slots):
        return None
    channels = dense((image.shape[1],), image.dtype)
    return _masked((image, channels, channels), plain["output_mask"])


def _layer_norm(slots: Slots, plain: Plain) -> Specs | None:
    rows, normalized = slots[0], len(plain["normalized_shape"])
    if not _one_dtype(slots) or rows.shape[-normalized:] != plain["normalized_shape"]:
        return None
    stats = dense((*rows.shape[: len(rows.shape) - normalized], *(1,) * normalized), rows.dtype)
    return dense(rows.shape, rows.dtype), stats, stats


def _layer_norm_backward(slots: Slots, plain: Plain) -> Specs | None:
    rows = slots[1]
    if not _one_dtype(slots):
        return None
    parameter = dense(plain["normalized_shape"], rows.dtype)
    return _masked((dense(rows.shape, rows.dtype), parameter, parameter), plain["output_mask"])


def _mm(slots: Slots, plain: Plain) -> Specs | None:
    a, b = slots[-2:]
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None
    return (dense((*a.shape[:-1], b.shape[-1]), a.dtype),) if _one_dtype(slots) else None


def _convolution(slots: Slots, plain: Plain) -> Specs | None:
    image, weight = slots[:2]
    dims = len(weight.shape) - 2
    if not _one_dtype(slots) or not plain["stride"] or plain["transposed"] or len(image.shape) != len(weight.shape):
        return None
    sizes = []
    for i in range(dims):
        stride, padding, dilation = (_item(plain[name], i) for name in ("stride", "padding", "dilation"))
        sizes.append((image.shape[2 + i] + 2 * padding - dilation * (weight.shape[2 + i] - 1) - 1) // stride + 1)
    last = _stored_channels_last(image) or _stored_channels_last(weight)
    if image.shape[1] != weight.shape[1] * plain["groups"] or min(sizes) <= 0 or (last and dims != 2):
        return None
    shape = (image.shape[0], weight.shape[0], *sizes)
    return (make_spec(shape, channels_last_strides(shape), image.dtype) if last else dense(shape, image.dtype),)


def _convolution_backward(slots: Slots, plain: Plain) -> Specs | None:
    grad, image, weight = slots
    if not _one_dtype(slots) or not (image.contiguous and weight.contiguous):
        return None
    bias = dense((grad.shape[1],), grad.dtype)
    return _masked((dense(image.shape, grad.dtype), dense(weight.shape, grad.dtype), bias), plain["output_mask"])


def _cat(slots: Slots, plain: Plain) -> Specs | None:
    tensors = slots[1:]
    first, dim = tensors[0], plain["dim"] % max(len(tensors[0].shape), 1)
    rest = first.shape[:dim], first.shape[dim + 1 :]
    fits = [t.contiguous and (t.shape[:dim], t.shape[dim + 1 :]) == rest for t in tensors]
    if not _one_dtype(tensors) or not all(fits):
        return None
    return (dense((*rest[0], sum(t.shape[dim] for t in tensors), *rest[1]), first.dtype),)


def _one_dtype(specs: Slots) -> bool:
    """Whether all tensors that are there have one dtype."""
    return len({s.dtype for s in specs if s is not None}) == 1


def _masked(specs: Specs, mask: Any) -> Specs:
    """The specs that ``mask`` asks for, None in the place of the others."""
    return tuple(spec if wanted else None for spec, wanted in zip(specs, mask, strict=True))


def _item(values: Any, i: int) -> int:
    """A setting for dimension ``i``: one number holds for all."""
    return int(values[i] if len(values) > 1 else values[0])


def _stored_channels_last(spec: TensorSpec) -> bool:
    """Whether an image of (N, C, H, W) lies in memory as (N, H, W, C)."""
    # With a dimension of size 1 the two formats are alike, and PyTorch's choice depends on the op.
    return len(spec.shape) == 4 and 1 not in spec.shape and spec.stride == channels_last_strides(spec.shape)


def _is_image(spec: TensorSpec) -> bool:
    """Whether it lies in one of the two formats."""
    return spec.contiguous or _stored_channels_last(spec)


#: By the op's name without its overload.
FORMULAS: dict[str, Formula] = {
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), _mm),
    "cat": _cat,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}


_CACHE_ENTRIES = 50_000
_shapes: dict[Hashable, tuple[Specs, bool]] = {}
_dtypes: dict[Hashable, str] = {}

Known = tuple[Specs, bool]


def look_up(
    func: Any,
    info: Operator,
    slots: tuple[Any, ...],
    plain: tuple[Hashable, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Known | None:
    """The outputs' specs and whether the op returns a bare tensor; None when its meta kernel has to run."""
    key = (func, slots, plain)
    known = _shapes.get(key)
    if known is None:
        known = _derive(func, info, slots, plain, args, kwargs)
        if known is not None:
            remember(func, slots, plain, known)
    return known


def remember(func: Any, slots: tuple[Any, ...], plain: tuple[Hashable, ...], known: Known) -> None:
    """Keep the specs that were derived, or that a meta kernel gave."""
    if len(_shapes) > _CACHE_ENTRIES:
        _shapes.clear()
    _shapes[func, slots, plain] = known


def _derive(
    func: Any,
    info: Operator,
    slots: tuple[Any, ...],
    plain: tuple[Hashable, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Known | None:
    if info.pointwise:
        operands = [s for s in slots if type(s) is TensorSpec]
        dtype = _pointwise_dtype(func, operands, plain, args, kwargs)
        return ((make_spec(*elementwise_layout(operands), dtype),), True) if operands and dtype else None
    formula = FORMULAS.get(info.base) if info.name.startswith("aten::") else None
    specs = None if formula is None else formula(slots, dict(zip(info.plain_names, plain, strict=True)))
    return None if specs is None else (specs, info.bare)


def _pointwise_dtype(
    func: Any, operands: list[TensorSpec], plain: tuple[Hashable, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str | None:
    """The dtype the real kernel gives for one element: type promotion depends on dtypes, ranks and kinds of scalars."""
    kinds = tuple(p if p is None or isinstance(p, (str, bool)) else type(p) for p in plain)
    key = func, tuple((o.dtype, bool(o.shape)) for o in operands), kinds
    if key not in _dtypes:
        try:
            result = func(*_stand_in(args), **_stand_in(kwargs))
        except RuntimeError:  # not on the CPU with this dtype: the meta kernel decides
            return None
        _dtypes[key] = dtype_name(result.dtype)
    return _dtypes[key]


def _stand_in(value: Any) -> Any:
    """Arguments with CPU tensors of one element in place of tensors."""
    if isinstance(value, Tensor):
        return torch.zeros((1,) * value.dim(), dtype=value.dtype, device="cpu")
    if isinstance(value, (list, tuple)):
        return type(value)([_stand_in(v) for v in value])
    return {k: _stand_in(v) for k, v in value.items()} if isinstance(value, dict) else value


def specs_of(result: Any) -> Known | None:
    """The specs of a result; None for results a cache cannot rebuild (lists of lists, sparse tensors)."""
    if isinstance(result, Tensor):
        return ((spec_of(result),), True) if result.layout is torch.strided else None
    if not isinstance(result, tuple):
        return None
    specs: list[TensorSpec | None] = []
    for item in result:
        if item is None:
            specs.append(None)
        elif isinstance(item, Tensor) and item.layout is torch.strided:
            specs.append(spec_of(item))
        else:
            return None
    return tuple(specs), False
