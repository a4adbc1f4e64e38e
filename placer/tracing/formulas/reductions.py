"""Reductions, softmax and scans."""

from __future__ import annotations

from placer.tracing.formulas.base import Formula, Plain, Slots, Specs
from placer.tracing.layout import dense

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


FORMULAS: dict[str, Formula] = {
    **{n: _reduction(n) for n in ("sum", "mean", "amax", "amin", "any", "all", "var", "std", "var_mean", "std_mean")},
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _softmax_backward,
    **dict.fromkeys(("cumsum", "cumprod"), _cumulative),
}
