"""Batch, layer and group norms."""

from __future__ import annotations

from placer.tracing.formulas.base import Formula, Plain, Slots, Specs, image_like, masked, one_dtype
from placer.tracing.layout import dense


def _batch_norm(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[0]
    out = image_like(image)
    if out is None or not one_dtype(*slots) or any(s is not None and s.shape != image.shape[1:2] for s in slots[1:]):
        return None
    stats = dense((image.shape[1] if plain["training"] else 0,), image.dtype)
    return out, stats, stats


def _batch_norm_backward(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[1]
    out = image_like(image)
    if out is None or not one_dtype(*slots):
        return None
    channels = dense((image.shape[1],), image.dtype)
    return masked((out, channels, channels), plain["output_mask"])


def _layer_norm(slots: Slots, plain: Plain) -> Specs | None:
    rows, normalized = slots[0], len(plain["normalized_shape"])
    if not one_dtype(*slots) or rows.shape[-normalized:] != plain["normalized_shape"]:
        return None
    stats = dense((*rows.shape[: len(rows.shape) - normalized], *(1,) * normalized), rows.dtype)
    return dense(rows.shape, rows.dtype), stats, stats


def _layer_norm_backward(slots: Slots, plain: Plain) -> Specs | None:
    rows = slots[1]
    if not one_dtype(*slots):
        return None
    parameter = dense(plain["normalized_shape"], rows.dtype)
    return masked((dense(rows.shape, rows.dtype), parameter, parameter), plain["output_mask"])


def _group_norm(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[0]
    if not one_dtype(*slots) or not image.contiguous:
        return None
    stats = dense((plain["N"], plain["group"]), image.dtype)
    return dense(image.shape, image.dtype), stats, stats


def _group_norm_backward(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[1]
    if not one_dtype(*slots) or not image.contiguous or not slots[0].contiguous:
        return None
    channels = dense((plain["C"],), image.dtype)
    return masked((dense(image.shape, image.dtype), channels, channels), plain["output_mask"])


FORMULAS: dict[str, Formula] = {
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
}
