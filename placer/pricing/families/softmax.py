"""Softmax and log-softmax, and their gradients."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features, aten
from placer.pricing.families.sharing import CHUNKS, Sharing, fine_grains
from placer.tracing import OpCall

SIZES = {"numel": "elements", "row": "elements of one row, the innermost dimension"}
FLAGS = {"strided": "the operand is not contiguous"}


def read_rows(call: OpCall) -> Features:
    """FLOPs: 12 per element."""
    source = max(call.inputs, key=lambda t: t.numel)
    inner = source.shape[-1] if source.shape else 1
    return Features(12.0 * source.numel, (source.numel, inner), (float(not source.contiguous),))


FAMILY = Family(
    name="softmax",
    ops=aten("_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data _safe_softmax"),
    sizes=SIZES,
    flags=FLAGS,
    read=read_rows,
    sharing=Sharing(fine_grains),
    earlier=CHUNKS,
)
