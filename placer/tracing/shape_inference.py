"""Specs of an op's outputs without running its meta kernel.

Meta kernels written in Python take 0.2 to 5 milliseconds each. Most ops of a network are elementwise, have a formula
(see ``formulas``), or repeat with equal shapes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from placer.tracing.formulas import FORMULAS, Specs
from placer.tracing.layout import elementwise_layout, make_spec, spec_of
from placer.tracing.op_schema import Operator, dtype_name
from placer.tracing.trace_data import TensorSpec

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
