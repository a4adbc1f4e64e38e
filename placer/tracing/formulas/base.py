"""What formulas are made of: their types, and the layouts of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from placer.tracing.layout import channels_last_strides, dense, make_spec
from placer.tracing.trace_data import TensorSpec

#: A spec per output; None for one that is not made.
Specs = tuple[TensorSpec | None, ...]
#: The tensor arguments: None where absent; a list of tensors is its length, then its items.
Slots = tuple[Any, ...]
#: The other arguments by name.
Plain = dict[str, Any]
Formula = Callable[[Slots, Plain], Specs | None]


def one_dtype(*specs: TensorSpec | None) -> bool:
    """Whether all tensors that are there have one dtype."""
    return len({s.dtype for s in specs if s is not None}) == 1


def masked(specs: Specs, mask: Any) -> Specs:
    """The specs that ``mask`` asks for, None in the place of the others."""
    return tuple(spec if wanted else None for spec, wanted in zip(specs, mask, strict=True))


def item(values: Any, i: int) -> int:
    """A setting for dimension ``i``: one number holds for all."""
    return int(values[i] if len(values) > 1 else values[0])


def stored_channels_last(spec: TensorSpec) -> bool:
    """Whether an image of (N, C, H, W) lies in memory as (N, H, W, C)."""
    # With a dimension of size 1 the two formats are alike, and PyTorch's choice depends on the op.
    return len(spec.shape) == 4 and 1 not in spec.shape and spec.stride == channels_last_strides(spec.shape)


def image_like(spec: TensorSpec) -> TensorSpec | None:
    """The spec itself where it lies in one of the two formats; None elsewhere."""
    return spec if spec.contiguous or stored_channels_last(spec) else None


def image_spec(shape: Sequence[int], dtype: str, last: bool) -> TensorSpec:
    """An image of ``shape``; ``last``: channels last."""
    return make_spec(tuple(shape), channels_last_strides(shape), dtype) if last else dense(shape, dtype)
