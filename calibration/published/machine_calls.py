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

from placer.calibration.benchmarks.op_database import step_of
from placer.calibration.benchmarks.probe import Apply
from placer.calibration.published.machines import MachineOp
from placer.calibration.published.networks import with_kept_gradients
from placer.errors import TraceError
from placer.tracing import Trace, trace_here
from placer.workload import Workload

#: A function, and the tensors that it is called with.
Call = tuple[Callable[..., Any], tuple[Any, ...]]


def trace_call(row: MachineOp) -> Trace:
    """The op calls of a row. Raises TraceError where it cannot be mapped, or this torch refuses it."""
    build = _BUILDERS.get(row.op, _method)
    try:
        function, args = build(row)
        if row.phase == "bwd":
            return _backward(row, function, args)
        return replace(trace_here(step_of(Apply(function), args, learns=False)), outputs=())
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
    workload = Workload(
        target=module, modules=(module,), args=given, kwargs={}, mode="train", loss=torch.mean, optimizer=None,
        data="device",
    )  # fmt: skip
    traced = trace_here(workload)
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
    return partial(_made, *bounds), ()


def _made(*bounds: float) -> Tensor:
    return torch.arange(*bounds, device="meta")


def _clamp(row: MachineOp) -> Call:
    return partial(torch.clamp, min=-1.0, max=1.0), tuple(_inputs(row))


def _fill(row: MachineOp) -> Call:
    return _filled, tuple(_inputs(row))


def _filled(x: Tensor) -> Tensor:
    return x.fill_(1)


def _nan_to_num(row: MachineOp) -> Call:
    return partial(getattr(torch, row.op), nan=1.0), tuple(_inputs(row))


def _to(row: MachineOp) -> Call:
    return partial(_converted, dtype=getattr(torch, row.shapes["to"])), tuple(_inputs(row))


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


def _product(row: MachineOp) -> Call:
    tensors = _inputs(row)
    for i, name in enumerate(("a_contiguous", "b_contiguous")):
        if not row.shapes.get(name, True):
            tensors[i] = _stored(tensors[i].shape, (1, 0), row.dtype)
    return torch.matmul, tuple(tensors)


def _sequence(row: MachineOp) -> Call:
    return partial(_joined, getattr(torch, row.op), row.shapes["dim"]), tuple(_inputs(row))


def _joined(join: Callable[..., Tensor], dim: int, *tensors: Tensor) -> Tensor:
    return join(tensors, dim=dim)


def _sum(row: MachineOp) -> Call:
    (shape,) = row.shapes["in"]
    x = _empty(shape)
    if not row.shapes.get("contiguous", True):  # every other element of a tensor twice as large
        x = _empty([2 * n for n in shape])[tuple(slice(None, None, 2) for _ in shape)]
    dim = row.shapes.get("dim")
    return (torch.sum if dim is None else partial(torch.sum, dim=dim)), (x,)


def _diag(row: MachineOp) -> Call:
    x, diagonal = _inputs(row)[0], row.shapes["diagonal"]
    call = partial(torch.diag, diagonal=diagonal)
    return (partial(_into, call), (x, call(x))) if row.shapes["out_variant"] else (call, (x,))


def _into(call: Callable[..., Tensor], x: Tensor, out: Tensor) -> Tensor:
    return call(x, out=out)


def _index(row: MachineOp) -> Call:
    tensor, index = _inputs(row)[0], _empty(row.shapes["index"], "int64")
    if row.op == "index":
        return _rows, (tensor, index)
    return partial(getattr(torch, row.op), dim=row.shapes["dim"]), (tensor, index)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    return x[index]


def _gather(row: MachineOp) -> Call:
    tensor, index = _inputs(row)[0], _empty(row.shapes["index"], "int64")
    return partial(_gathered, row.shapes["dim"]), (tensor, index)


def _gathered(dim: int, x: Tensor, index: Tensor) -> Tensor:
    return torch.gather(x, dim, index)


def _index_select(row: MachineOp) -> Call:
    tensor, index = _inputs(row)[0], _empty(row.shapes["index"], "int64")
    return partial(_selected, row.shapes["dim"]), (tensor, index)


def _selected(dim: int, x: Tensor, index: Tensor) -> Tensor:
    return torch.index_select(x, dim, index)


def _index_add(row: MachineOp) -> Call:
    x, more = _inputs(row)
    return partial(_added, row.shapes["dim"]), (x, _empty(row.shapes["index"], "int64"), more)


def _added(dim: int, x: Tensor, index: Tensor, more: Tensor) -> Tensor:
    return x.index_add_(dim, index, more)


def _index_put(row: MachineOp) -> Call:
    x, values = _inputs(row)
    return _put, (x, _empty(row.shapes["index"], "int64"), values)


def _put(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    x[index] = values
    return x


def _scatter_reduce(row: MachineOp) -> Call:
    """Of one column: the index has no more."""
    x, source = _inputs(row)
    call = partial(_reduced, row.shapes["dim"], row.shapes["reduce"])
    return call, (x, _empty(row.shapes["index"], "int64"), source)


def _reduced(dim: int, how: str, x: Tensor, index: Tensor, source: Tensor) -> Tensor:
    return x.scatter_reduce(dim, index, source, reduce=how)


def _embedding(row: MachineOp) -> Call:
    (indices,) = row.shapes["in"]
    return functional.embedding, (_empty(indices, "int64"), _empty(row.shapes["w"]))


def _embedding_bag(row: MachineOp) -> Call:
    indices, offsets = row.shapes["in"]
    call = partial(_bags, row.shapes["mode"], row.shapes["sparse"], row.shapes["include_last_offset"])
    return call, (_empty(indices, "int64"), _empty(offsets, "int64"), _empty(row.shapes["w"]))


def _bags(mode: str, sparse: bool, last: bool, indices: Tensor, offsets: Tensor, weight: Tensor) -> Tensor:
    return functional.embedding_bag(
        indices, weight, offsets, mode=mode, sparse=sparse, include_last_offset=last
    )


def _with_layout(row: MachineOp) -> tuple[Tensor, Tensor]:
    """Input and weight of a convolution; the source's may be permuted views of channels last."""
    make = _channels_last if row.channels_last else _empty
    return make(row.shapes["in"][0]), make(row.shapes["w"])


def _convolution(row: MachineOp) -> Call:
    x, weight = _with_layout(row)
    transposed = "transpose" in row.op
    channels = row.shapes["w"][1] * row.shapes.get("groups", 1) if transposed else row.shapes["w"][0]
    bias = (_empty([channels]),) if row.shapes["bias"] else ()
    options = {
        "stride": row.shapes["stride"], "padding": row.shapes["pad"], "groups": row.shapes.get("groups", 1),
    }  # fmt: skip
    return partial(getattr(functional, row.op), **options), (x, weight, *bias)


def _linear(row: MachineOp) -> Call:
    weight = row.shapes["w"]
    w = _stored(weight, (1, 0)) if row.weight_transposed else _empty(weight)
    bias = (_empty(weight[:1]),) if row.shapes["bias"] else ()
    return functional.linear, (_inputs(row)[0], w, *bias)


def _prelu(row: MachineOp) -> Call:
    return functional.prelu, (_inputs(row)[0], _empty(row.shapes["w"]))


def _attention(row: MachineOp) -> Call:
    return _attended, (*_inputs(row), _empty(row.shapes["attn_mask"]))


def _attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _batch_norm(row: MachineOp) -> Call:
    x, size = _inputs(row)[0], row.shapes["w"]
    return partial(_batch_normed, row.shapes["training"]), (x, *(_empty(size) for _ in range(4)))


def _batch_normed(training: bool, x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.batch_norm(x, mean, variance, weight, bias, training)


def _norm(row: MachineOp) -> Call:
    """Of layers, groups or instances, with weight and bias where the row has a weight."""
    x, size = _inputs(row)[0], row.shapes["w"]
    affine = () if size is None else (_empty(size), _empty(size))
    if row.op == "layer_norm":
        return partial(_layer_normed, row.shapes["normalized_shape"]), (x, *affine)
    if row.op == "group_norm":
        return partial(_group_normed, row.shapes["groups"]), (x, *affine)
    return _instance_normed, (x, *affine)


def _layer_normed(shape: Sequence[int], x: Tensor, *affine: Tensor) -> Tensor:
    return functional.layer_norm(x, list(shape), *affine)


def _group_normed(groups: int, x: Tensor, *affine: Tensor) -> Tensor:
    return functional.group_norm(x, groups, *affine)


def _instance_normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.instance_norm(x, weight=weight, bias=bias)


def _interpolate(row: MachineOp) -> Call:
    (shape,) = row.shapes["in"]
    make = _channels_last if row.shapes["channels_last"] else _empty
    call = partial(functional.interpolate, size=tuple(row.shapes["size"]), mode=row.shapes["mode"])
    return call, (make(shape, row.dtype),)


def _shuffle(row: MachineOp) -> Call:
    (shape,) = row.shapes["in"]
    make = _channels_last if row.shapes["channels_last"] else _empty
    return partial(torch.channel_shuffle, groups=row.shapes["groups"]), (make(shape),)


_BUILDERS: Mapping[str, Callable[[MachineOp], Call]] = {
    "where": _where, "arange": _arange, "clamp": _clamp, "fill_": _fill, "nan_to_num": _nan_to_num,
    "nan_to_num_": _nan_to_num, "to": _to, "matmul": _product, "cat": _sequence, "stack": _sequence, "sum": _sum,
    "diag": _diag, "index": _index, "gather": _gather, "index_select": _index_select, "index_add_": _index_add,
    "index_put_": _index_put, "scatter_reduce": _scatter_reduce, "embedding": _embedding,
    "embedding_bag": _embedding_bag, "linear": _linear, "prelu": _prelu, "scaled_dot_product_attention": _attention,
    "batch_norm": _batch_norm, "interpolate": _interpolate, "channel_shuffle": _shuffle,
    **{name: _norm for name in ("layer_norm", "group_norm", "instance_norm")},
    **{f"conv{how}{n}d": _convolution for how in ("", "_transpose") for n in (1, 2, 3)},
    **{name: _function(name, "dim") for name in ("argmax", "softmax", "log_softmax", "sort", "argsort")},
    **{name: _layer(name) for name in (
        "binary_cross_entropy", "leaky_relu", "selu", "softplus", "gelu", "hardshrink", "hardsigmoid", "hardswish",
    )},
    **{f"{kind}_pool{n}d": _layer(f"{kind}_pool{n}d", "kernel_size=kernel", "stride")
       for kind in ("max", "avg") for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": _layer(f"adaptive_max_pool{n}d", "output_size") for n in (2, 3)},
    **{f"fractional_max_pool{n}d": _layer(f"fractional_max_pool{n}d", "kernel_size=kernel", "output_size")
       for n in (2, 3)},
    "split": _function("split", "split_size_or_sections=split_size"), "chunk": _function("chunk", "chunks"),
    "unique": _function("unique"),
}  # fmt: skip
