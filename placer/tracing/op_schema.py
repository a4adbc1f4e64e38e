"""How an operator treats its arguments, read once from its schema."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

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


_DTYPE_NAMES: dict[torch.dtype, str] = {}


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        name = _DTYPE_NAMES[dtype] = str(dtype).removeprefix("torch.")
    return name
