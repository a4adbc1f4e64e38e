"""Tensor specs of tensors, and the strides PyTorch gives to the results of ops."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, cast

import torch

from placer.tracing.trace_data import TensorSpec

_DTYPE_NAMES: dict[torch.dtype, str] = {}


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    name = _DTYPE_NAMES.get(dtype)
    if name is None:
        name = _DTYPE_NAMES[dtype] = str(dtype).removeprefix("torch.")
    return name


_INTERNED = 50_000
_specs: dict[Hashable, TensorSpec] = {}


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The interned spec of a tensor.

    A sparse tensor of whole rows, such as an embedding's gradient, counts as those rows; any other as its dense shape.
    A nested tensor counts as all its rows.
    """
    if tensor.is_nested:
        return _spec_of_nested(tensor)
    if tensor.layout is not torch.strided:
        rows = tensor.layout is torch.sparse_coo and tensor.dense_dim() > 0
        shape = (tensor._nnz(), *tensor.shape[tensor.sparse_dim() :]) if rows else tuple(tensor.shape)
        return make_spec(shape, contiguous_strides(shape), dtype_name(tensor.dtype))
    key = (tensor.shape, tensor.stride(), tensor.dtype)
    spec = _specs.get(key)
    if spec is None:
        spec = _specs[key] = make_spec(*key[:2], dtype_name(tensor.dtype))
    return spec


def _spec_of_nested(tensor: torch.Tensor) -> TensorSpec:
    if tensor.layout is torch.jagged:
        return spec_of(cast(Any, tensor)._values)
    sizes = tensor._nested_tensor_size()
    rows, last = int(sizes[:, :-1].prod(1).sum()), int(sizes[:, -1].max())
    return dense((rows, last), dtype_name(tensor.dtype))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one block of memory with strides."""
    return tensor.layout is torch.strided and not tensor.is_nested


def same_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are the same view of the same memory, whatever objects they are."""
    return (
        is_dense(left)
        and is_dense(right)
        and left.dtype == right.dtype
        and left.shape == right.shape
        and left.stride() == right.stride()
        and left.storage_offset() == right.storage_offset()
        and left.untyped_storage()._cdata == right.untyped_storage()._cdata
    )


def make_spec(shape: Sequence[int], stride: Sequence[int], dtype: str) -> TensorSpec:
    """The interned spec with these fields."""
    key = (shape, stride, dtype)
    spec = _specs.get(key)
    if spec is None:
        if len(_specs) > _INTERNED:
            _specs.clear()
        spec = TensorSpec(tuple(shape), tuple(stride), dtype)
        _specs[tuple(shape), tuple(stride), dtype] = spec
    return spec


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides (in elements) of a row-major tensor."""
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def dense(shape: Sequence[int], dtype: str) -> TensorSpec:
    """A contiguous tensor."""
    return make_spec(tuple(shape), contiguous_strides(shape), dtype)


def like(spec: TensorSpec) -> TensorSpec:
    """The spec ``empty_like`` with ``preserve_format`` gives."""
    return make_spec(*elementwise_layout([spec]), spec.dtype)


def elementwise_layout(operands: Sequence[TensorSpec]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides TensorIterator gives the output of an elementwise op on these operands."""
    first = operands[0]
    shape = first.shape
    if all(o.shape == shape for o in operands):
        if all(o.contiguous for o in operands):
            return shape, contiguous_strides(shape)
        if all(is_channels_last(o) for o in operands):
            return shape, channels_last_strides(shape)
        if all(o.stride == first.stride for o in operands) and non_overlapping_and_dense(shape, first.stride):
            return shape, first.stride
    else:
        shape = broadcast_shape(operands)
    order = _dimension_order(shape, [broadcast_strides(o, shape) for o in operands])
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    return shape, tuple(strides)


def is_channels_last(spec: TensorSpec) -> bool:
    """Whether an NCHW tensor is stored as NHWC; dimensions of size 1 may have any stride."""
    if len(spec.shape) != 4:
        return False
    expected = channels_last_strides(spec.shape)
    return all(n == 1 or s == e for n, s, e in zip(spec.shape, spec.stride, expected, strict=True))


def channels_last_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides (in elements) of an NCHW tensor stored as NHWC."""
    _, channels, height, width = (max(n, 1) for n in shape)
    return height * width * channels, 1, width * channels, channels


def non_overlapping_and_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether the strides are those of a permuted contiguous tensor."""
    expected = 1
    for s, n in sorted((s, n) for n, s in zip(shape, stride, strict=True) if n != 1):
        if s != expected:
            return False
        expected *= n
    return True


def broadcast_shape(operands: Sequence[TensorSpec]) -> tuple[int, ...]:
    """The common shape. RuntimeError, as PyTorch raises, where there is none."""
    rank = max(len(o.shape) for o in operands)
    result = [1] * rank
    for operand in operands:
        for i, n in enumerate(operand.shape, rank - len(operand.shape)):
            if n != 1:
                if result[i] not in (1, n):
                    shapes = " and ".join(str(list(o.shape)) for o in operands)
                    raise RuntimeError(f"the shapes {shapes} cannot be broadcast together")
                result[i] = n
    return tuple(result)


def broadcast_strides(operand: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of ``operand`` in a result of ``shape``: 0 along the dimensions it is repeated in."""
    missing = len(shape) - len(operand.shape)
    aligned = (0 if n == 1 and shape[missing + i] != 1 else s
               for i, (n, s) in enumerate(zip(operand.shape, operand.stride, strict=True)))  # fmt: skip
    return (0,) * missing + tuple(aligned)


def _dimension_order(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> list[int]:
    """Dimensions from the fastest to the slowest: TensorIterator's insertion sort, ties and all."""

    def compare(a: int, b: int) -> int:
        for stride in strides:
            if stride[a] == 0 or stride[b] == 0:
                continue
            if stride[a] != stride[b]:
                return -1 if stride[a] < stride[b] else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    order = list(range(len(shape) - 1, -1, -1))
    for i in range(1, len(order)):
        moving = i
        for other in range(i - 1, -1, -1):
            verdict = compare(order[other], order[moving])
            if verdict > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif verdict < 0:
                break
    return order


def numel_broadcast(operands: Sequence[TensorSpec]) -> int:
    """Elements of the result of an elementwise op."""
    return math.prod(broadcast_shape(operands))
