"""Operators: how each treats its arguments, what a trace records of them, and the specs of its outputs.

Meta kernels written in Python take 0.2 to 5 milliseconds each. Most ops of a network are elementwise, have a formula,
or repeat with equal shapes: their outputs' specs are known without the kernel. Without the formulas of normalization,
tracing DenseNet-121 takes twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from placer.tracing.trace_data import (
    TensorSpec,
    channels_last_strides,
    dense,
    dtype_name,
    elementwise_layout,
    is_channels_last,
    make_spec,
    spec_of,
)

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
_ALSO_POINTWISE = frozenset({
    "elu_backward", "softplus_backward", "hardtanh_backward", "leaky_relu_backward", "hardswish_backward",
    "hardsigmoid_backward", "mish_backward", "silu_backward", "gelu_backward", "threshold_backward",
    "sigmoid_backward", "tanh_backward", "logit_backward", "softshrink_backward", "hardshrink_backward",
})  # fmt: skip


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
    #: Writes its arguments and returns nothing, as ops on lists of tensors do.
    returns_nothing: bool
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
        (a.name, "Tensor" in str(a.type) or _SCRIPTED in str(a.type), freeze(a.default_value), a.name in _NOISE)
        for a in schema.arguments
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
        returns_nothing=mutable and not schema.returns,
        bare=len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor",
        plain_names=tuple(name for name, holds, _, noise in parameters if not (holds or noise)),
    )


#: What the type of an argument begins with that is an object of TorchScript.
_SCRIPTED = "__torch__"


def packed_specs(value: Any) -> list[TensorSpec]:
    """The weight of a quantized convolution and its bias, of the object that holds both packed.

    Other objects are left closed: what they hold follows from the shapes of operands and results, and unpacking the
    weight of a linear layer takes longer than a step of it.
    """
    if not (value._has_method("unpack") and value._has_method("dilation")):
        return []
    return [spec_of(tensor) for tensor in value.unpack() if tensor is not None]


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


class Call(NamedTuple):
    """One call of an operator, and its arguments as a trace records them."""

    func: Any
    info: Operator
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: Specs of the tensor arguments: None where absent, a list's length before its items.
    slots: tuple[Any, ...]
    #: The specs alone.
    inputs: tuple[TensorSpec, ...]
    #: The other arguments, hashable.
    plain: tuple[Hashable, ...]
    #: How many of the tensors are meta, and how many have values.
    n_meta: int
    n_real: int


def read_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """A call as a trace records it."""
    info = operator(func)
    slots: list[Any] = []
    plain: list[Hashable] = []
    n_meta = n_real = 0
    positional = len(args)
    for index, (name, holds_tensors, default, noise) in enumerate(info.parameters):
        if index < positional:
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
            slots.append(spec_of(value))
            if value.is_meta:
                n_meta += 1
            else:
                n_real += 1
        elif noise:
            continue
        elif value is None:
            (slots if holds_tensors else plain).append(None)
        elif isinstance(value, torch.ScriptObject):
            slots.extend(packed_specs(value))
        elif holds_tensors and isinstance(value, (list, tuple)):
            slots.append(len(value))
            for item in value:
                if item is None:
                    slots.append(None)
                    continue
                if isinstance(item, torch.ScriptObject):
                    slots.extend(packed_specs(item))
                    continue
                slots.append(spec_of(item))
                if item.is_meta:
                    n_meta += 1
                else:
                    n_real += 1
        else:
            plain.append(value if type(value) in HASHABLE else freeze(value))
    inputs = tuple([slot for slot in slots if type(slot) is TensorSpec])
    return Call(func, info, args, kwargs, tuple(slots), inputs, tuple(plain), n_meta, n_real)


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The tensors among arguments, those in lists included."""
    tensors: list[Any] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors.extend(v for v in value if isinstance(v, Tensor))
    return tensors


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Arguments with ``function`` applied to every tensor, those in lists and dictionaries included."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_tensors(function, v) for v in value])
    return {k: map_tensors(function, v) for k, v in value.items()} if isinstance(value, dict) else value


def on_meta(info: Operator, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments that make a factory's result meta."""
    return {**kwargs, "device": torch.device("meta"), "pin_memory": None} if info.takes_device else kwargs


def mask_to_indices(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
    """Replace boolean masks with known values by the integer indices they select, and the syncs of the real op."""
    syncs = 0
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


# --- the specs of outputs ---------------------------------------------------------------------------------------------

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
    specs = (image, channels, channels)
    return tuple(spec if wanted else None for spec, wanted in zip(specs, plain["output_mask"], strict=True))


def _convolution(slots: Slots, plain: Plain) -> Specs | None:
    # Needed for more than speed: the meta kernel gives the result for a channels-last image a contiguous layout.
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


def _one_dtype(specs: Slots) -> bool:
    """Whether all tensors that are there have one dtype."""
    return len({s.dtype for s in specs if s is not None}) == 1


def _item(values: Any, i: int) -> int:
    """A setting for dimension ``i``: one number holds for all."""
    return int(values[i] if len(values) > 1 else values[0])


def _stored_channels_last(spec: TensorSpec) -> bool:
    """Whether an image of (N, C, H, W) lies in memory as (N, H, W, C)."""
    # With a dimension of size 1 the two formats are alike, and PyTorch's choice depends on the op.
    return 1 not in spec.shape and is_channels_last(spec)


def _is_image(spec: TensorSpec) -> bool:
    """Whether it lies in one of the two formats."""
    return spec.contiguous or _stored_channels_last(spec)


#: By the op's name without its overload.
FORMULAS: dict[str, Formula] = {
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "convolution": _convolution,
}


#: An output's specs, and whether the op returns a bare tensor.
Known = tuple[Specs, bool]

_CACHE_ENTRIES = 50_000
_known: dict[Hashable, Known] = {}
_dtypes: dict[Hashable, str] = {}


def known_outputs(call: Call) -> Known | None:
    """The specs of what a call gives; None when its meta kernel has to run."""
    outputs = _known.get((call.func, call.slots, call.plain))
    if outputs is None:
        outputs = _derive(call)
        if outputs is not None:
            remember(call, outputs)
    return outputs


def remember(call: Call, outputs: Known) -> None:
    """Keep the specs that were derived, or that a meta kernel gave."""
    if len(_known) > _CACHE_ENTRIES:
        _known.clear()
    _known[call.func, call.slots, call.plain] = outputs


def _derive(call: Call) -> Known | None:
    info = call.info
    if info.pointwise:
        dtype = _pointwise_dtype(call) if 1 <= len(call.inputs) <= 3 else None
        return ((make_spec(*elementwise_layout(call.inputs), dtype),), True) if dtype else None
    formula = FORMULAS.get(info.base) if info.name.startswith("aten::") else None
    specs = None if formula is None else formula(call.slots, dict(zip(info.plain_names, call.plain, strict=True)))
    return None if specs is None else (specs, info.bare)


def _pointwise_dtype(call: Call) -> str | None:
    """The dtype the real kernel gives for one element: type promotion depends on dtypes, ranks and kinds of scalars."""
    kinds = tuple(p if p is None or isinstance(p, (str, bool)) else type(p) for p in call.plain)
    key = call.func, tuple((spec.dtype, bool(spec.shape)) for spec in call.inputs), kinds
    if key not in _dtypes:
        try:
            result = call.func(*map_tensors(_one_element, call.args), **map_tensors(_one_element, call.kwargs))
        except RuntimeError:  # not on the CPU with this dtype: the meta kernel decides
            return None
        _dtypes[key] = dtype_name(result.dtype)
    return _dtypes[key]


def _one_element(tensor: Tensor) -> Tensor:
    return torch.zeros((1,) * tensor.dim(), dtype=tensor.dtype, device="cpu")


def specs_of(result: Any) -> Known | None:
    """The specs of a result; None for results a cache cannot rebuild (lists of lists, sparse tensors)."""
    items = (result,) if isinstance(result, Tensor) else result
    if not isinstance(items, tuple):
        return None
    specs: list[TensorSpec | None] = []
    for item in items:
        if item is not None and not (isinstance(item, Tensor) and item.layout is torch.strided):
            return None
        specs.append(None if item is None else spec_of(item))
    return tuple(specs), isinstance(result, Tensor)
