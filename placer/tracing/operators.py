"""Operators: how each treats its arguments, and the arguments of a call as a trace records them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from placer.tracing import layout
from placer.tracing.layout import dtype_name

# Arguments that say nothing about the work: the inputs' strides say how tensors are laid out.
_NOISE = frozenset({"device", "layout", "pin_memory", "generator", "non_blocking"})
# In-place ops that change what kind of view the tensor is, so they have to run.
_METADATA_WRITES = frozenset({
    "resize_", "resize_as_", "set_", "squeeze_", "unsqueeze_", "t_", "transpose_", "swapaxes_", "swapdims_",
    "as_strided_", "detach_", "requires_grad_", "sparse_resize_", "rename_", "unsafe_chunk",
    "resize_as_sparse_",
})  # fmt: skip
# Ops that alias their input, which their schema hides.
_HIDDEN_VIEWS = frozenset({"_unsafe_view", "lift_fresh", "_unsafe_split"})
# Ops tagged pointwise whose strides follow other rules than TensorIterator's.
_NOT_POINTWISE = frozenset({"clone", "copy", "_conj_physical", "fill", "masked_fill", "_to_copy", "lift_fresh_copy"})


# Elementwise in fact, though not tagged so.
_ALSO_POINTWISE = frozenset(
    f"{name}_backward"
    for name in (
        "elu", "softplus", "hardtanh", "leaky_relu", "hardswish", "hardsigmoid", "mish", "silu", "gelu", "threshold",
        "sigmoid", "tanh", "logit", "softshrink", "hardshrink",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operator:
    """An overload: its name and how it treats its arguments."""

    name: str  # "aten::add"
    base: str  # "add"
    #: (name, holds tensors, default made hashable, noise)
    parameters: tuple[tuple[str, bool, Hashable, bool], ...]
    view: bool
    in_place: bool
    #: Position and name of each argument that it writes.
    writes: tuple[tuple[int, str], ...]
    #: Writes its first argument, returns it, and leaves its shape alone.
    returns_self: bool
    pointwise: bool
    #: Outputs are fresh tensors that depend on the inputs' specs and the arguments only.
    functional: bool
    takes_device: bool
    #: Returns one tensor, not a tuple.
    bare: bool
    #: Names of the non-tensor arguments a call records, in order.
    plain_names: tuple[str, ...]


@lru_cache(maxsize=8192)
def operator(func: Any) -> Operator:
    """The description of an ``OpOverload``."""
    schema = func._schema
    name = schema.name
    base = name.split("::")[-1]
    mutable = schema.is_mutable
    aliases = any(r.alias_info is not None for r in schema.returns) or base in _HIDDEN_VIEWS
    tensor_returns = bool(schema.returns) and all(str(r.type) in ("Tensor", "List[Tensor]") for r in schema.returns)
    writes = tuple(
        (i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
    )
    returns_self = (
        mutable
        and base.endswith("_")
        and [position for position, _ in writes] == [0]
        and len(schema.returns) == 1
        and schema.arguments[0].name == "self"
        and str(schema.arguments[0].type) == "Tensor"
        and base not in _METADATA_WRITES
    )
    data_dependent = torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
    functional = not mutable and not aliases and tensor_returns and not data_dependent
    pointwise = (
        functional
        and (torch.Tag.pointwise in func.tags or base in _ALSO_POINTWISE)
        and len(schema.returns) == 1
        and str(schema.returns[0].type) == "Tensor"
        and base not in _NOT_POINTWISE
    )
    parameters = tuple(
        (a.name, "Tensor" in str(a.type), freeze(a.default_value), a.name in _NOISE) for a in schema.arguments
    )
    return Operator(
        name=name,
        base=base,
        parameters=parameters,
        view=aliases and not mutable,
        in_place=mutable,
        writes=writes,
        returns_self=returns_self,
        pointwise=pointwise,
        functional=functional,
        takes_device=any(a.name == "device" for a in schema.arguments),
        bare=len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor",
        plain_names=tuple(name for name, holds, _, noise in parameters if not (holds or noise)),
    )


#: Types of values that are hashable as they are: most arguments.
HASHABLE = frozenset({int, float, bool, str, type(None)})


def freeze(value: Any) -> Hashable:
    """A hashable stand-in for a non-tensor argument."""
    if isinstance(value, (bool, int, float, str, complex, type(None))):
        return value
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (list, tuple)):
        return tuple([v if type(v) in HASHABLE else freeze(v) for v in value])
    return str(value)


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
