"""Pooling."""

from __future__ import annotations

from placer.tracing.formulas.base import (
    Formula,
    Plain,
    Slots,
    Specs,
    image_like,
    image_spec,
    item,
    stored_channels_last,
)
from placer.tracing.layout import dense, make_spec
from placer.tracing.trace_data import TensorSpec


def _pooled(image: TensorSpec, plain: Plain) -> TensorSpec | None:
    if len(image.shape) != 4 or plain["ceil_mode"] or image_like(image) is None:
        return None
    sizes = []
    for i in range(2):
        kernel, padding = item(plain["kernel_size"], i), item(plain["padding"] or (0,), i)
        stride = item(plain["stride"], i) if plain["stride"] else kernel
        reach = item(plain.get("dilation") or (1,), i) * (kernel - 1)
        sizes.append((image.shape[2 + i] + 2 * padding - reach - 1) // stride + 1)
    if min(sizes) <= 0:
        return None
    return image_spec((*image.shape[:2], *sizes), image.dtype, stored_channels_last(image))


def _max_pool2d(slots: Slots, plain: Plain) -> Specs | None:
    out = _pooled(slots[0], plain)
    return None if out is None else (out, make_spec(out.shape, out.stride, "int64"))


def _avg_pool2d(slots: Slots, plain: Plain) -> Specs | None:
    out = _pooled(slots[0], plain)
    return None if out is None else (out,)


def _adaptive_avg_pool2d(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[0]
    if not image.contiguous:
        return None
    return (dense((*image.shape[:-2], *plain["output_size"]), image.dtype),)


def _pool_backward(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[1]
    return (dense(image.shape, image.dtype),) if image.contiguous and slots[0].contiguous else None


FORMULAS: dict[str, Formula] = {
    "max_pool2d_with_indices": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "_adaptive_avg_pool2d": _adaptive_avg_pool2d,
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"), _pool_backward
    ),
}
