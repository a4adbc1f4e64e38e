"""The arguments of an op call: flattened to what a trace records, or changed into what can run."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from placer.tracing import layout
from placer.tracing.op_schema import HASHABLE, Operator, freeze

#: Ops that give a value to Python.
READS = frozenset({"aten::_local_scalar_dense", "aten::is_nonzero", "aten::item", "aten::equal"})
#: Ops that may select by a boolean mask.
MASKED_INDEXING = frozenset({"index", "index_put", "_index_put_impl", "_unsafe_index"})
#: Ops whose number of results depends on values: the host waits for it.
COUNTS = frozenset({"nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount"})
#: Ops that raise an error if a value says so: the host waits for it.
CHECKS = frozenset({"_linalg_check_errors"})


def flatten(
    info: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], tuple[Hashable, ...], int, int]:
    """Tensor arguments as specs (None where absent, a list's length before its items); other arguments, hashable.

    Then the numbers of tensors that are meta and that have values.
    """
    slots: list[Any] = []
    plain: list[Hashable] = []
    meta = real = 0
    given = len(args)
    for index, (name, holds_tensors, default, noise) in enumerate(info.parameters):
        if index < given:
            value = args[index]
        elif name in kwargs:
            value = kwargs[name]
        else:
            if holds_tensors:
                slots.append(None)
            elif not noise:
                plain.append(default)
            continue
        if isinstance(value, Tensor):
            slots.append(layout.spec_of(value))
            if value.is_meta:
                meta += 1
            else:
                real += 1
        elif noise:
            continue
        elif value is None:
            (slots if holds_tensors else plain).append(None)
        elif holds_tensors and isinstance(value, (list, tuple)):
            slots.append(len(value))
            for item in value:
                if item is None:
                    slots.append(None)
                    continue
                slots.append(layout.spec_of(item))
                if item.is_meta:
                    meta += 1
                else:
                    real += 1
        else:
            plain.append(value if type(value) in HASHABLE else freeze(value))
    return tuple(slots), tuple(plain), meta, real


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors among arguments, those in lists included."""
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(v for v in value if isinstance(v, Tensor))
    return found


def to_meta(value: Any) -> Any:
    """Arguments with real tensors replaced: an op on mixed devices would refuse to run."""
    if isinstance(value, Tensor):
        return value if value.is_meta else value.to("meta") if value.layout is not torch.strided else _bare_meta(value)
    if isinstance(value, (list, tuple)):
        return type(value)([to_meta(v) for v in value])
    if isinstance(value, dict):
        return {k: to_meta(v) for k, v in value.items()}
    return value


def _bare_meta(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")


def on_meta(info: Operator, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments that make a factory's result meta."""
    return {**kwargs, "device": torch.device("meta"), "pin_memory": None} if info.takes_device else kwargs


def mask_to_indices(args: tuple[Any, ...], syncs: int) -> tuple[tuple[Any, ...], int]:
    """Replace boolean masks with known values by the integer indices they select, as the real op does after a sync."""
    indices: list[Any] = []
    for index in args[1]:
        if isinstance(index, Tensor) and not index.is_meta and index.dtype in (torch.bool, torch.uint8):
            indices.extend(index.nonzero().unbind(1))
            syncs += 1
        else:
            indices.append(index)
    return (args[0], indices, *args[2:]), syncs


def as_sequence(result: Any) -> Any:
    """What an op returned, as an iterable."""
    return result if isinstance(result, (list, tuple)) else (result,)
