"""An op as the kernels of an accelerator see it, where that is another thing than what a CPU's see.

Fitting and pricing on an accelerator describe every op this way, a CPU's never. What tells kernels apart only on the
CPU is left out: a few hundred samples would be split among ops that are one, and spread over features that are none.
"""

from __future__ import annotations

import math
from dataclasses import replace

from placer.pricing import parameter_updates
from placer.pricing.families import FAMILIES
from placer.pricing.kernels import SUFFIX
from placer.pricing.step_context import CONTEXT_FLAGS, CONTEXT_SIZES
from placer.pricing.work import Work

#: Where an op stands in its step. It decides which of its code and operands a core's caches hold; an accelerator's
#: kernels find their code in place.
_PLACE = frozenset(("kinds", "previous", "reuse_distance", "kept", "recording", "evicted", "first"))
_SIZES = tuple(name in _PLACE for name in CONTEXT_SIZES)
_FLAGS = tuple(name in _PLACE for name in CONTEXT_FLAGS)
#: Suffixes that name another kernel on an accelerator too. Rows that are picked by a mask are searched by kernels of
#: their own there, and rows that are added up where they fall are sorted first.
_KEPT = frozenset(("mask", "accumulate", "foreach", "fused"))
#: Widest query that FlashAttention serves.
_WIDEST_FLASH = 256
_HALVES = ("bfloat16", "float16")


def on_accelerator(work: Work) -> Work:
    """The same op, as an accelerator's kernels are told apart. Applied twice it changes nothing more."""
    op, dot, suffix = work.op.partition(SUFFIX)
    kept = bool(dot) and suffix in _KEPT and work.family != "reduction"
    found = replace(
        work, op=work.op if kept else op, dtype=work.dtype.partition("+")[0],
        sizes=_cleared(work.sizes, _SIZES), flags=_cleared(work.flags, _FLAGS),
    )  # fmt: skip
    if work.family == "attention":
        return replace(found, op=f"{op}{SUFFIX}{_backend(found)}")
    if work.family == "optimizer" and not kept:
        return _updated_together(found)
    return found


def launches(work: Work) -> float:
    """Kernels that a call stands for at the least; of an update, one tensor's share of those that update all."""
    if work.family == "optimizer":
        momentum, weight_decay, fused = work.flags[:3]
        ops, _ = parameter_updates.foreach(
            work.op.partition(SUFFIX)[0], momentum=bool(momentum), weight_decay=bool(weight_decay)
        )
        tensors = max(work.sizes[1], 1.0)
        return (1 if fused else ops) * math.ceil(tensors / parameter_updates.TENSORS_PER_LAUNCH) / tensors
    if work.family == "recurrent":  # cuDNN runs one kernel for a time step at the least
        return max(work.sizes[0] * work.sizes[4], 1.0)
    return float(FAMILIES[work.family].dispatches(work))


def _cleared(values: tuple[float, ...], cleared: tuple[bool, ...]) -> tuple[float, ...]:
    """``values`` with those of the last ones that are marked set to zero."""
    own = len(values) - len(cleared)
    return (*values[:own], *(0.0 if out else v for v, out in zip(values[own:], cleared, strict=True)))


def _updated_together(work: Work) -> Work:
    momentum, weight_decay, fused = (bool(flag) for flag in work.flags[:3])
    if fused:
        return replace(work, op=f"{work.op}{SUFFIX}fused")
    _, factor = parameter_updates.foreach(work.op, momentum=momentum, weight_decay=weight_decay)
    return replace(work, op=f"{work.op}{SUFFIX}foreach", bytes=factor * work.bytes)


def _backend(work: Work) -> str:
    """What runs attention, by dtype, mask and width of a query (ATen/native/transformers/cuda/sdp_utils.cpp).

    FlashAttention takes half precision without a mask, the memory-efficient kernel any mask where the width fills its
    loads of 16 bytes, and the rest is written out as products and a softmax.
    """
    width = work.sizes[3]
    masked = work.flags[1] > 0.0
    half = work.dtype in _HALVES
    if half and not masked and width <= _WIDEST_FLASH:
        return "flash"
    loads = 8 if half else 4
    return "efficient" if work.dtype in ("float32", *_HALVES) and width % loads == 0 else "math"
