"""Names what runs for an op call, where the layout of its operands picks another kernel."""

from __future__ import annotations

from placer.tracing import OpCall

#: Stands between an op and the layout of its operands, where that picks another kernel.
LAYOUT = "."
#: Ops of two operands, of which one may be a number of Python's.
_OF_TWO = frozenset(("aten::add", "aten::sub", "aten::mul", "aten::div"))
#: Ops that take numbers of rows or a mask.
_BY_INDEX = frozenset(("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"))


def op(kernel: str) -> str:
    """The op that ``kernel`` is one of."""
    return kernel.partition(LAYOUT)[0]


def kernel(call: OpCall) -> str:
    """The op, and what of its operands' layout makes it run otherwise.

    ``number``: of a tensor and a number, for which a tensor is made first; of a few elements that takes as long as the
    rest. ``mask``: elements that a mask picks; it is searched for them, which takes far less than as many numbers of
    rows. A sum of a mask counts in integers, several times as long as one of floating numbers.
    ``rows``: a batch norm of a matrix, whose channels lie side by side. Its gradient takes each number for a plane of
    its own (``batch_norm_cpu_backward_contiguous_impl`` in ATen/native/cpu/batch_norm_kernel.cpp), six times as long as
    that of images; statistics are taken of whole rows, in half the time.
    """
    if "batch_norm" in call.op and max((len(t.shape) for t in call.inputs), default=0) == 2:
        return f"{call.op}{LAYOUT}rows"
    if has_scalar_operand(call):
        return f"{call.op}{LAYOUT}number"
    if call.op == "aten::sum" and any(t.dtype == "bool" for t in call.inputs):
        return f"{call.op}{LAYOUT}mask"
    if call.op in _BY_INDEX and any(t.dtype == "bool" for t in call.inputs[1:]) and call.inputs[0].dtype != "bool":
        return f"{call.op}{LAYOUT}mask"
    return call.op


def has_scalar_operand(call: OpCall) -> bool:
    """Whether one of two operands is a number of Python's."""
    return len(call.inputs) == 1 and call.op.rstrip("_") in _OF_TWO
