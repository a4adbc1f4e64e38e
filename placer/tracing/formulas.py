"""Output specs of common ops as formulas, agreeing with the real CPU kernels in shape, strides and dtype.

A formula takes the tensor arguments (None where absent; a list of tensors is its length, then its items) and the other
arguments by name. It answers None when it does not cover the case, and the op's meta kernel runs instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from placer.tracing.layout import channels_last_strides, dense, elementwise_layout, make_spec
from placer.tracing.schema import dtype_name
from placer.tracing.trace import TensorSpec

Specs = tuple[TensorSpec | None, ...]
Slots = tuple[Any, ...]
Plain = dict[str, Any]
Formula = Callable[[Slots, Plain], Specs | None]


def _one_dtype(*specs: TensorSpec | None) -> bool:
    return len({s.dtype for s in specs if s is not None}) == 1


def _masked(specs: Specs, mask: Any) -> Specs:
    return tuple(spec if wanted else None for spec, wanted in zip(specs, mask, strict=True))


# --- layouts of images ----------------------------------------------------------------------------------------------


def _stored_channels_last(spec: TensorSpec) -> bool:
    # With a dimension of size 1 the two formats are alike, and PyTorch's choice depends on the op.
    return len(spec.shape) == 4 and 1 not in spec.shape and spec.stride == channels_last_strides(spec.shape)


def _image_like(spec: TensorSpec) -> TensorSpec | None:
    return spec if spec.contiguous or _stored_channels_last(spec) else None


def _image(shape: Sequence[int], dtype: str, last: bool) -> TensorSpec:
    return make_spec(tuple(shape), channels_last_strides(shape), dtype) if last else dense(shape, dtype)


# --- normalization --------------------------------------------------------------------------------------------------


def _batch_norm(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[0]
    out = _image_like(image)
    if out is None or not _one_dtype(*slots) or any(s is not None and s.shape != image.shape[1:2] for s in slots[1:]):
        return None
    stats = dense((image.shape[1] if plain["training"] else 0,), image.dtype)
    return out, stats, stats


def _batch_norm_backward(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[1]
    out = _image_like(image)
    if out is None or not _one_dtype(*slots):
        return None
    channels = dense((image.shape[1],), image.dtype)
    return _masked((out, channels, channels), plain["output_mask"])


def _layer_norm(slots: Slots, plain: Plain) -> Specs | None:
    rows, normalized = slots[0], len(plain["normalized_shape"])
    if not _one_dtype(*slots) or rows.shape[-normalized:] != plain["normalized_shape"]:
        return None
    stats = dense((*rows.shape[: len(rows.shape) - normalized], *(1,) * normalized), rows.dtype)
    return dense(rows.shape, rows.dtype), stats, stats


def _layer_norm_backward(slots: Slots, plain: Plain) -> Specs | None:
    rows = slots[1]
    if not _one_dtype(*slots):
        return None
    parameter = dense(plain["normalized_shape"], rows.dtype)
    return _masked((dense(rows.shape, rows.dtype), parameter, parameter), plain["output_mask"])


def _group_norm(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[0]
    if not _one_dtype(*slots) or not image.contiguous:
        return None
    stats = dense((plain["N"], plain["group"]), image.dtype)
    return dense(image.shape, image.dtype), stats, stats


def _group_norm_backward(slots: Slots, plain: Plain) -> Specs | None:
    image = slots[1]
    if not _one_dtype(*slots) or not image.contiguous or not slots[0].contiguous:
        return None
    channels = dense((plain["C"],), image.dtype)
    return _masked((dense(image.shape, image.dtype), channels, channels), plain["output_mask"])


# --- products -------------------------------------------------------------------------------------------------------


def _mm(slots: Slots, plain: Plain) -> Specs | None:
    a, b = slots[-2:]
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None
    return (dense((*a.shape[:-1], b.shape[-1]), a.dtype),) if _one_dtype(*slots) else None


def _convolution(slots: Slots, plain: Plain) -> Specs | None:
    image, weight = slots[:2]
    if not _one_dtype(*slots) or not plain["stride"] or len(image.shape) != len(weight.shape):
        return None
    dims = len(weight.shape) - 2
    sizes = []
    for i in range(dims):
        stride, padding, dilation, extra = (
            _item(plain[n], i) for n in ("stride", "padding", "dilation", "output_padding")
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
    last = _stored_channels_last(image) or _stored_channels_last(weight)
    if min(sizes) <= 0 or (last and dims != 2):
        return None
    return (_image((image.shape[0], channels, *sizes), image.dtype, last),)


def _convolution_backward(slots: Slots, plain: Plain) -> Specs | None:
    grad, image, weight = slots
    if not _one_dtype(*slots) or not (image.contiguous and weight.contiguous):
        return None
    bias = dense((grad.shape[1],), grad.dtype)
    return _masked((dense(image.shape, grad.dtype), dense(weight.shape, grad.dtype), bias), plain["output_mask"])


# --- reductions, rows, losses ---------------------------------------------------------------------------------------

_SUMS = frozenset({"sum", "prod", "nansum"})


def _reduction(name: str) -> Formula:
    def formula(slots: Slots, plain: Plain) -> Specs | None:
        source = slots[0]
        dtype = plain.get("dtype") or source.dtype
        if name in _SUMS and not plain.get("dtype") and not ("float" in dtype or "complex" in dtype):
            dtype = "int64"
        if name in ("any", "all"):
            dtype = "uint8" if source.dtype == "uint8" else "bool"
        dims = plain.get("dim")
        rank = len(source.shape)
        if dims is None or dims == ():
            reduced = set(range(rank))
        else:
            reduced = {d % rank for d in ((dims,) if isinstance(dims, int) else dims)} if rank else set()
        if plain.get("keepdim"):
            shape = tuple(1 if i in reduced else n for i, n in enumerate(source.shape))
        else:
            shape = tuple(n for i, n in enumerate(source.shape) if i not in reduced)
        out = dense(shape, dtype)
        return (out, out) if name in ("var_mean", "std_mean") else (out,)

    return formula


def _softmax(slots: Slots, plain: Plain) -> Specs | None:
    return (dense(slots[0].shape, "float32" if plain["half_to_float"] else slots[0].dtype),)


def _softmax_backward(slots: Slots, plain: Plain) -> Specs | None:
    return (dense(slots[0].shape, plain["input_dtype"]),)


def _cumulative(slots: Slots, plain: Plain) -> Specs | None:
    source = slots[0]
    dtype = plain.get("dtype") or (source.dtype if "float" in source.dtype or "complex" in source.dtype else "int64")
    return (dense(source.shape, dtype),)


def _nll_loss(slots: Slots, plain: Plain) -> Specs | None:
    scores, target = slots[:2]
    total = dense((), scores.dtype)
    return (dense(target.shape, scores.dtype) if plain["reduction"] == 0 else total), total


def _nll_loss_backward(slots: Slots, plain: Plain) -> Specs | None:
    return (dense(slots[1].shape, slots[1].dtype),)


def _pair_loss(slots: Slots, plain: Plain) -> Specs | None:
    if not _one_dtype(*slots):
        return None
    if plain["reduction"] != 0:
        return (dense((), slots[0].dtype),)
    return (make_spec(*elementwise_layout(slots[:2]), slots[0].dtype),)


def _pair_loss_backward(slots: Slots, plain: Plain) -> Specs | None:
    operands = [s for s in slots[:3] if s is not None]
    if not _one_dtype(*operands) or not all(o.contiguous for o in operands):
        return None
    return (make_spec(*elementwise_layout(operands), slots[1].dtype),)


# --- shapes and indices ---------------------------------------------------------------------------------------------


def _cat(slots: Slots, plain: Plain) -> Specs | None:
    parts = slots[1:]
    rank = len(parts[0].shape)
    if any(len(p.shape) != rank for p in parts) or not _one_dtype(*parts) or not all(p.contiguous for p in parts):
        return None
    if rank == 0:
        return None
    dim = plain["dim"] % rank
    shape = list(parts[0].shape)
    if any(p.shape[:dim] + p.shape[dim + 1 :] != parts[0].shape[:dim] + parts[0].shape[dim + 1 :] for p in parts):
        return None
    shape[dim] = sum(p.shape[dim] for p in parts)
    return (dense(shape, parts[0].dtype),)


def _same_dense(slots: Slots, plain: Plain) -> Specs | None:
    return (dense(slots[0].shape, slots[0].dtype),)


def _like(slots: Slots, plain: Plain) -> Specs | None:
    if plain.get("memory_format") not in (None, "torch.preserve_format"):
        return None
    source = slots[0]
    dtype = plain.get("dtype") or source.dtype
    return (make_spec(*elementwise_layout([source]), dtype),) if 0 not in source.stride else None


def _embedding(slots: Slots, plain: Plain) -> Specs | None:
    weight, indices = slots
    return (dense((*indices.shape, *weight.shape[1:]), weight.dtype),)


def _embedding_backward(slots: Slots, plain: Plain) -> Specs | None:
    return (dense((plain["num_weights"], slots[0].shape[-1]), slots[0].dtype),)


def _into_zeros(slots: Slots, plain: Plain) -> Specs | None:
    return (dense(plain["input_sizes"], slots[0].dtype),)


def _repeat(slots: Slots, plain: Plain) -> Specs | None:
    source, repeats = slots[0], plain["repeats"]
    shape = (1,) * (len(repeats) - len(source.shape)) + source.shape
    return (dense([n * r for n, r in zip(shape, repeats, strict=True)], source.dtype),)


def _new(slots: Slots, plain: Plain) -> Specs | None:
    return (dense(plain["size"], plain.get("dtype") or slots[0].dtype),)


def _factory(slots: Slots, plain: Plain) -> Specs | None:
    if plain.get("memory_format") not in (None, "torch.contiguous_format") or "names" in plain:
        return None
    dtype = plain.get("dtype")
    if dtype is None:
        if "fill_value" in plain and not isinstance(plain["fill_value"], float):
            return None
        dtype = dtype_name(torch.get_default_dtype())
    return (dense(plain["size"], dtype),)


# --- pooling --------------------------------------------------------------------------------------------------------


def _item(values: Any, i: int) -> int:
    return int(values[i] if len(values) > 1 else values[0])


def _pooled(image: TensorSpec, plain: Plain) -> TensorSpec | None:
    if len(image.shape) != 4 or plain["ceil_mode"] or _image_like(image) is None:
        return None
    sizes = []
    for i in range(2):
        kernel, padding = _item(plain["kernel_size"], i), _item(plain["padding"] or (0,), i)
        stride = _item(plain["stride"], i) if plain["stride"] else kernel
        reach = _item(plain.get("dilation") or (1,), i) * (kernel - 1)
        sizes.append((image.shape[2 + i] + 2 * padding - reach - 1) // stride + 1)
    if min(sizes) <= 0:
        return None
    return _image((*image.shape[:2], *sizes), image.dtype, _stored_channels_last(image))


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
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), _mm),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **{n: _reduction(n) for n in ("sum", "mean", "amax", "amin", "any", "all", "var", "std", "var_mean", "std_mean")},
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _softmax_backward,
    **dict.fromkeys(("cumsum", "cumprod"), _cumulative),
    **dict.fromkeys(("tril", "triu"), _same_dense),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _nll_loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _nll_loss_backward),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"), _pair_loss),
    **dict.fromkeys(
        ("mse_loss_backward", "smooth_l1_loss_backward", "binary_cross_entropy_backward"), _pair_loss_backward
    ),
    "cat": _cat,
    **dict.fromkeys(
        ("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "bernoulli"), _like
    ),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("slice_backward", "select_backward"), _into_zeros),
    "repeat": _repeat,
    **dict.fromkeys(("new_zeros", "new_ones", "new_empty", "new_full"), _new),
    **dict.fromkeys(("zeros", "ones", "empty", "full", "rand", "randn"), _factory),
    "max_pool2d_with_indices": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "_adaptive_avg_pool2d": _adaptive_avg_pool2d,
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"), _pool_backward
    ),
}
