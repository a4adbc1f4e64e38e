"""The ops of published rows of single ops, as the sources call them: a step of one op, traced without values.

Shapes, strides and dtypes are those of the source, and no op is run. Of a backward row, the trace has the backward pass
of the output's mean and the additions to the leaves' gradients, which the source keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from placer.calibration.benchmarks.probe import Apply, step_of
from placer.calibration.lab.published.machines import MachineOp
from placer.calibration.lab.published.networks import with_kept_gradients
from placer.errors import TraceError
from placer.tracing import Trace, trace_here

#: A function, and the tensors that it is called with.
Call = tuple[Callable[..., Any], tuple[Any, ...]]


def trace_call(row: MachineOp) -> Trace:
    """The op calls of a row. Raises TraceError where it cannot be mapped, or this torch refuses it."""
    build = _BUILDERS.get(row.op, _method)
    try:
        function, args = build(row)
        if row.phase == "bwd":
            return _backward(row, function, args)
        return replace(trace_here(step_of(Apply(function), args)), outputs=())
    except (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise TraceError(f"{row.op} cannot be mapped: {error}") from error


class _Leaves(nn.Module):
    """A call whose floating point tensors are leaves that learn, as far as ``learns`` names them by position."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Tensor], learns: Sequence[int]) -> None:
        super().__init__()
        self.function, self.learns = function, learns
        self.leaves = nn.ParameterList(nn.Parameter(args[i]) for i in learns)

    def forward(self, *given: Tensor) -> Any:
        leaves, others = iter(self.leaves), iter(given)
        count = len(self.learns) + len(given)
        return self.function(*[next(leaves if i in self.learns else others) for i in range(count)])


def _backward(row: MachineOp, function: Callable[..., Any], args: Sequence[Tensor]) -> Trace:
    """Of ``out.mean()``, whose graph is kept: no forward pass, no loss."""
    if row.shapes.get("sparse"):
        raise TraceError("sparse gradients that add up")
    learns = _LEARN.get(row.op, tuple(range(len(args))))
    module = _Leaves(function, args, learns)
    given = tuple(tensor for i, tensor in enumerate(args) if i not in learns)
    traced = trace_here(step_of(module, given, loss=torch.mean, trains=True))
    calls = tuple(call for call in traced.calls if call.phase == "backward")
    calls = with_kept_gradients(traced, calls, cleared=False)
    return replace(traced, calls=calls, outputs=(), dataflow=(), python_calls=0, module_calls=0)


#: Positions of the tensors that a backward row differentiates by, where they are not all.
_LEARN = {"batch_norm": (0,), "embedding": (1,), "embedding_bag": (2,)}


def _empty(shape: Sequence[int], dtype: str = "float32") -> Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def _inputs(row: MachineOp) -> list[Tensor]:
    shapes = row.shapes["in"]
    dtypes = row.shapes.get("dtypes") or [row.dtype] * len(shapes)
    return [_empty(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def _stored(shape: Sequence[int], order: Sequence[int], dtype: str = "float32") -> Tensor:
    """A view of this shape, of memory that holds its dimensions in that order."""
    memory = _empty([shape[i] for i in order], dtype)
    return memory.permute([order.index(i) for i in range(len(order))])


def _channels_last(shape: Sequence[int], dtype: str = "float32") -> Tensor:
    return _stored(shape, (0, *range(2, len(shape)), 1), dtype)


def _method(row: MachineOp) -> Call:
    """A method of the first tensor, on the others."""
    return getattr(torch.Tensor, row.op), tuple(_inputs(row))


def _function(name: str, *of_shapes: str, home: Any = torch, **fixed: Any) -> Callable[[MachineOp], Call]:
    """A builder of a call of torch or of torch.nn.functional, with these arguments by name and by the row's."""

    def build(row: MachineOp) -> Call:
        given = {key.partition("=")[0]: row.shapes[key.rpartition("=")[2]] for key in of_shapes}
        return partial(getattr(home, name), **given, **fixed), tuple(_inputs(row))

    return build


_layer = partial(_function, home=functional)


def _where(row: MachineOp) -> Call:
    condition, *others = row.shapes["in"]
    return torch.where, (_empty(condition, "bool"), *map(_empty, others))


def _arange(row: MachineOp) -> Call:
    bounds = [row.shapes[name] for name in ("start", "end", "step")]
    return lambda: torch.arange(*bounds, device="meta"), ()


def _to(row: MachineOp) -> Call:
    dtype = getattr(torch, row.shapes["to"])
    return lambda x: x.to(dtype), tuple(_inputs(row))


def _product(row: MachineOp) -> Call:
    tensors = _inputs(row)
    for i, name in enumerate(("a_contiguous", "b_contiguous")):
        if not row.shapes.get(name, True):
            tensors[i] = _stored(tensors[i].shape, (1, 0), row.dtype)
    return torch.matmul, tuple(tensors)


def _sequence(row: MachineOp) -> Call:
    join, dim = getattr(torch, row.op), row.shapes["dim"]
    return lambda *tensors: join(tensors, dim=dim), tuple(_inputs(row))


def _sum(row: MachineOp) -> Call:
    (shape,) = row.shapes["in"]
    x = _empty(shape)
    if not row.shapes.get("contiguous", True):  # every other element of a tensor twice as large
        x = _empty([2 * n for n in shape])[tuple(slice(None, None, 2) for _ in shape)]
    dim = row.shapes.get("dim")
    return (torch.sum if dim is None else partial(torch.sum, dim=dim)), (x,)


def _diag(row: MachineOp) -> Call:
    x, call = _inputs(row)[0], partial(torch.diag, diagonal=row.shapes["diagonal"])
    return (lambda x, out: call(x, out=out), (x, call(x))) if row.shapes["out_variant"] else (call, (x,))


def _indexed(row: MachineOp) -> Call:
    """By a tensor of places, which are int64."""
    x, *more = _inputs(row)
    dim, how = row.shapes.get("dim", 0), row.shapes.get("reduce")
    calls: Mapping[str, Callable[..., Any]] = {
        "index": lambda x, places: x[places],
        "index_put_": lambda x, places, values: x.index_put_((places,), values),
        "gather": lambda x, places: torch.gather(x, dim, places),
        "index_select": lambda x, places: torch.index_select(x, dim, places),
        "index_add_": lambda x, places, values: x.index_add_(dim, places, values),
        "scatter_reduce": lambda x, places, values: x.scatter_reduce(dim, places, values, reduce=how),
    }
    return calls[row.op], (x, _empty(row.shapes["index"], "int64"), *more)


def _embedding(row: MachineOp) -> Call:
    return functional.embedding, (_empty(row.shapes["in"][0], "int64"), _empty(row.shapes["w"]))


def _embedding_bag(row: MachineOp) -> Call:
    """The source's weight learns: then torch keeps which bag each index is in."""
    indices, offsets = (_empty(shape, "int64") for shape in row.shapes["in"])
    options = {name: row.shapes[name] for name in ("mode", "sparse", "include_last_offset")}
    call: Callable[..., Tensor] = partial(functional.embedding_bag, **options)
    weight = _empty(row.shapes["w"]).requires_grad_()
    return lambda indices, offsets, weight: call(indices, weight, offsets), (indices, offsets, weight)


def _convolution(row: MachineOp) -> Call:
    """Input and weight may be permuted views of memory with the channels last."""
    make, weight = _channels_last if row.channels_last else _empty, row.shapes["w"]
    groups = row.shapes.get("groups", 1)
    channels = weight[1] * groups if "transpose" in row.op else weight[0]
    bias = (_empty([channels]),) if row.shapes["bias"] else ()
    call = partial(getattr(functional, row.op), stride=row.shapes["stride"], padding=row.shapes["pad"], groups=groups)
    return call, (make(row.shapes["in"][0]), make(weight), *bias)


def _linear(row: MachineOp) -> Call:
    shape = row.shapes["w"]
    weight = _stored(shape, (1, 0)) if row.weight_transposed else _empty(shape)
    bias = (_empty(shape[:1]),) if row.shapes["bias"] else ()
    return functional.linear, (_inputs(row)[0], weight, *bias)


def _prelu(row: MachineOp) -> Call:
    return functional.prelu, (_inputs(row)[0], _empty(row.shapes["w"]))


def _attention(row: MachineOp) -> Call:
    return functional.scaled_dot_product_attention, (*_inputs(row), _empty(row.shapes["attn_mask"]))


def _norm(row: MachineOp) -> Call:
    """With weight and bias where the row has a weight; a batch norm with its statistics too."""
    x, size = _inputs(row)[0], row.shapes["w"]
    affine = () if size is None else (_empty(size), _empty(size))
    if row.op == "batch_norm":
        call = partial(functional.batch_norm, training=row.shapes["training"])
        return call, (x, _empty(size), _empty(size), *affine)
    if row.op == "instance_norm":
        return lambda x, weight, bias: functional.instance_norm(x, weight=weight, bias=bias), (x, *affine)
    normalise: Callable[..., Tensor] = getattr(functional, row.op)
    over = row.shapes["normalized_shape"] if row.op == "layer_norm" else row.shapes["groups"]
    return lambda x, *affine: normalise(x, over, *affine), (x, *affine)


def _interpolate(row: MachineOp) -> Call:
    make = _channels_last if row.shapes["channels_last"] else _empty
    call = partial(functional.interpolate, size=tuple(row.shapes["size"]), mode=row.shapes["mode"])
    return call, (make(row.shapes["in"][0], row.dtype),)


def _shuffle(row: MachineOp) -> Call:
    make = _channels_last if row.shapes["channels_last"] else _empty
    return partial(torch.channel_shuffle, groups=row.shapes["groups"]), (make(row.shapes["in"][0]),)


_INDEXED = ("index", "index_put_", "gather", "index_select", "index_add_", "scatter_reduce")
_PLAIN_LAYERS = (
    "binary_cross_entropy", "leaky_relu", "selu", "softplus", "gelu", "hardshrink", "hardsigmoid", "hardswish",
)  # fmt: skip
_BUILDERS: Mapping[str, Callable[[MachineOp], Call]] = {
    "where": _where, "arange": _arange, "to": _to, "matmul": _product, "cat": _sequence, "stack": _sequence,
    "sum": _sum, "diag": _diag, "embedding": _embedding, "embedding_bag": _embedding_bag, "linear": _linear,
    "prelu": _prelu, "scaled_dot_product_attention": _attention, "interpolate": _interpolate,
    "channel_shuffle": _shuffle, "split": _function("split", "split_size_or_sections=split_size"),
    "chunk": _function("chunk", "chunks"), "unique": _function("unique"),
    "clamp": _function("clamp", min=-1.0, max=1.0), "fill_": _function("fill_", home=Tensor, value=1),
    **{name: _function(name, nan=1.0) for name in ("nan_to_num", "nan_to_num_")},
    **dict.fromkeys(_INDEXED, _indexed),
    **dict.fromkeys(("batch_norm", "layer_norm", "group_norm", "instance_norm"), _norm),
    **{f"conv{how}{n}d": _convolution for how in ("", "_transpose") for n in (1, 2, 3)},
    **{name: _function(name, "dim") for name in ("argmax", "softmax", "log_softmax", "sort", "argsort")},
    **{name: _layer(name) for name in _PLAIN_LAYERS},
    **{f"max_pool{n}d": _layer(f"max_pool{n}d", "kernel_size=kernel", "stride") for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _layer(f"avg_pool{n}d", "kernel_size=kernel", "stride") for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _layer(f"adaptive_max_pool{n}d", "output_size") for n in (2, 3)},
    **{f"fractional_max_pool{n}d": _layer(f"fractional_max_pool{n}d", "kernel_size=kernel", "output_size")
       for n in (2, 3)},
}  # fmt: skip
