"""Matrix products and convolutions."""

from __future__ import annotations

from placer.tracing.formulas.base import (
    Formula,
    Plain,
    Slots,
    Specs,
    image_spec,
    item,
    masked,
    one_dtype,
    stored_channels_last,
)
from placer.tracing.layout import dense


def _mm(slots: Slots, plain: Plain) -> Specs | None:
    a, b = slots[-2:]
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None
    return (dense((*a.shape[:-1], b.shape[-1]), a.dtype),) if one_dtype(*slots) else None


def _convolution(slots: Slots, plain: Plain) -> Specs | None:
    image, weight = slots[:2]
    if not one_dtype(*slots) or not plain["stride"] or len(image.shape) != len(weight.shape):
        return None
    dims = len(weight.shape) - 2
    sizes = []
    for i in range(dims):
        stride, padding, dilation, extra = (
            item(plain[n], i) for n in ("stride", "padding", "dilation", "output_padding")
        )
        reach = dilation * (weight.shape[2 + i] - 1)
        size = image.shape[2 + i]
        if plain["transposed"]:
            sizes.append((size - 1) * stride - 2 * padding + reach + extra + 1)
        else:
            sizes.append((size + 2 * padding - reach - 1) // stride + 1)
    channels = weight.shape[1] * plain["groups"] if plain["transposed"] else weight.shape[0]
    if image.shape[1] != (weight.shape[0] if plain["transposed"] else weight.shape[1] * plain["groups"]):
        return None
    last = stored_channels_last(image) or stored_channels_last(weight)
    if min(sizes) <= 0 or (last and dims != 2):
        return None
    return (image_spec((image.shape[0], channels, *sizes), image.dtype, last),)


def _convolution_backward(slots: Slots, plain: Plain) -> Specs | None:
    grad, image, weight = slots
    if not one_dtype(*slots) or not (image.contiguous and weight.contiguous):
        return None
    bias = dense((grad.shape[1],), grad.dtype)
    return masked((dense(image.shape, grad.dtype), dense(weight.shape, grad.dtype), bias), plain["output_mask"])


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), _mm),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
