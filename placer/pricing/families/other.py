"""Everything else: ops without a formula, and ops of other libraries. None of them is free."""

from __future__ import annotations

from placer.pricing.families.family import Family, Features
from placer.pricing.operands import largest
from placer.tracing import OpCall


def _read(call: OpCall) -> Features:
    """FLOPs: 1 per element of the largest tensor. That is too few for most of these ops, and a lower bound."""
    return Features(float(largest((*call.inputs, *call.outputs))), (largest(call.inputs), largest(call.outputs)))


FAMILY = Family(
    name="other",
    # Their cost is arithmetic that placer has no formula for, whatever the sizes of their operands.
    prefixes=("aten::linalg_", "aten::_linalg_", "aten::fft_", "aten::_fft_", "aten::_ctc"),
    sizes={"inputs": "elements of the largest operand", "outputs": "elements of the largest result"},
    read=_read,
)
