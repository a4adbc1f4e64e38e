"""Elementwise ops: one result per element.

Arithmetic, activations, comparisons, casts, copies and concatenation; and every op that no family lists and whose
result is at least as large as its operands (see ``describe.describe``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.families.sharing import CHUNKS, Sharing, fine_grains, grains
from placer.pricing.families.tensor_iterator import Loop, innermost
from placer.pricing.operands import largest, operand_bytes
from placer.pricing.work import Work
from placer.tracing import OpCall

#: FLOPs per element of functions that are not a single instruction but a polynomial or a table. Any other takes 1.
_EVALUATED = {
    "exp": 10, "log": 10, "tanh": 20, "sigmoid": 15, "gelu": 25, "silu": 18, "mish": 40, "softplus": 25, "erf": 20,
    "sin": 15, "cos": 15, "pow": 20, "elu": 15, "log1p": 15, "expm1": 15, "tan": 25, "atan2": 30, "log_sigmoid": 25,
    "gelu_backward": 35, "mish_backward": 50, "silu_backward": 25, "softplus_backward": 25, "elu_backward": 15,
    "log_sigmoid_forward": 25, "log_sigmoid_backward": 25, "hardswish": 4, "logit": 20, "lgamma": 60, "digamma": 60,
}  # fmt: skip
#: FLOPs per element from which on arithmetic takes longer than memory, whatever cache the element comes from.
_LONG = 10
#: Elements up to which GELU stays on one core (ATen/native/cpu/Activation.cpp).
GELU_GRAIN = 16384
_GELU = aten("gelu gelu_backward")
#: Functions from a vector math library, whose loops are shared early (ATen/native/cpu/UnaryOpsKernel.cpp).
_FINE = aten(
    "acos asin atan cos erf erfc erfinv exp expm1 i0 lgamma log log10 log1p log2 log_sigmoid_forward logit sin sqrt "
    "tan tanh trunc"
)

SIZES = {
    "numel": "elements of the result",
    "bytes": "bytes of all operands and results",
    "inner": "elements of the innermost loop (see ``tensor_iterator``)",
    "block": "elements of the two innermost loops together",
}
FLAGS = {
    "strided": "elements that follow each other in the innermost loop are not adjacent in memory",
    "broadcast": "an operand is smaller than the result, or expanded to it",
    "in_place": "an operand is overwritten",
}


def read(call: OpCall) -> Features:
    """FLOPs: 1 per element, more for functions that are not one instruction."""
    out = max(largest(call.outputs), largest(call.inputs) if call.in_place else 0)
    name = call.op.removeprefix("aten::").rstrip("_")
    broadcast = any(t.numel < out or 0 in t.stride for t in call.inputs if t.numel > 1)
    written = call.inputs[:1] if call.in_place else call.outputs[:1]
    loop = innermost(written[0], call.inputs) if written else Loop(1, 1, strided=False)
    most = max(out, 1)
    return Features(
        float(_EVALUATED.get(name, 1)) * out,
        (out, operand_bytes(call), min(loop.length, most), min(loop.block, most)),
        (float(loop.strided), float(broadcast), float(call.in_place)),
    )


def _restarts(work: Work) -> float:
    """How often the innermost loop starts again."""
    numel, _, inner = work.sizes[:3]
    return max(numel / max(inner, 1.0) - 1.0, 0.0)


def _blocks(work: Work) -> float:
    """How often the two innermost loops start again."""
    numel, _, _, block = work.sizes[:4]
    return max(numel / max(block, 1.0) - 1.0, 0.0)


def _strided(work: Work) -> float:
    """Elements that are not adjacent in memory to the one before."""
    return work.flags[0] * work.sizes[0]


def _evaluates(work: Work) -> bool:
    """Whether the function is a polynomial or a table rather than a single instruction."""
    return work.flops >= _LONG * work.sizes[0] > 0


def _pieces(work: Work) -> float:
    """Pieces that the loop is cut into, by the grain of its kernel."""
    name = work.op.rstrip("_")
    if name in _GELU:
        return fine_grains(work) if work.sizes[0] > GELU_GRAIN else 1.0
    return fine_grains(work) if name in _FINE else grains(work)


_LOOPS: Mapping[str, Callable[[Work], float]] = {"restarts": _restarts, "blocks": _blocks, "strided": _strided}

FAMILY = Family(
    name="elementwise",
    sizes=SIZES,
    flags=FLAGS,
    read=read,
    cpu_amounts=_LOOPS,
    sharing=Sharing(_pieces, {"flops": lambda w: w.flops, "bytes": lambda w: w.bytes, **_LOOPS}),
    earlier=CHUNKS,
    evaluates=_evaluates,
)
