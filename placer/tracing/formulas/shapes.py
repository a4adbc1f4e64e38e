"""What makes tensors of given shapes: factories, concatenation, embeddings."""

from __future__ import annotations

import torch

from placer.tracing.formulas.base import Formula, Plain, Slots, Specs, one_dtype
from placer.tracing.layout import dense, elementwise_layout, make_spec
from placer.tracing.op_schema import dtype_name


def _cat(slots: Slots, plain: Plain) -> Specs | None:
    parts = slots[1:]
    rank = len(parts[0].shape)
    if any(len(p.shape) != rank for p in parts) or not one_dtype(*parts) or not all(p.contiguous for p in parts):
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


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("tril", "triu"), _same_dense),
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
}
