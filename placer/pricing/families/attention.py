"""Scaled dot-product attention, kept whole, and its gradient."""

from __future__ import annotations

import math

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.work import Work
from placer.tracing import OpCall


def _read(call: OpCall) -> Features:
    """FLOPs: 2 x batch x length x source x (width + output width), 5 instead of 2 for the gradient."""
    q, k, v = [t for t in call.inputs if len(t.shape) >= 3][:3]
    batch = math.prod(q.shape[:-2])
    length, width = q.shape[-2:]
    source, out_width = k.shape[-2], v.shape[-1]
    backward = call.op.endswith("_backward")
    flops = (5.0 if backward else 2.0) * batch * length * source * (width + out_width)
    masked = any(len(t.shape) >= 2 and t.shape[-2:] == (length, source) for t in call.inputs[3:])
    causal = bool(call.args) and call.args[0] is True
    dropped = len(call.args) > 2 and isinstance(call.args[2], float) and call.args[2] > 0.0
    return Features(flops, (batch, length, source, width), (float(causal), float(masked), float(dropped)))


def _scores(work: Work) -> float:
    batch, length, source = work.sizes[:3]
    return batch * length * source


def _rows(work: Work) -> float:
    return work.sizes[0]


def _dropped_scores(work: Work) -> float:
    """Scores with dropout: no fused kernel serves on the CPU, so they are written out, masked and read again."""
    batch, length, source = work.sizes[:3]
    return work.flags[2] * batch * length * source


FAMILY = Family(
    name="attention",
    ops=aten("scaled_dot_product_attention scaled_dot_product_attention_backward"),
    sizes={
        "batch": "sequences x heads",
        "length": "queries of a sequence",
        "source": "keys of a sequence",
        "width": "elements of a query",
    },
    flags={
        "causal": "a query sees only the keys up to its own position",
        "masked": "a mask is added to the scores",
        "dropout": "scores are dropped at random",
    },
    read=_read,
    amounts={"scores": _scores, "rows": _rows},
    cpu_amounts={"dropped_scores": _dropped_scores},
)
