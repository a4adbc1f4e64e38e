"""Names the kernel of an op call: the op, with a suffix where its operands select a slower or a faster kernel."""

from __future__ import annotations

from placer.pricing.operands import has_true_argument
from placer.tracing import OpCall

#: Separates an op's name from the suffix of its kernel.
SUFFIX = "."
#: Ops of two operands, of which one may be a Python number.
_OF_TWO = frozenset(("aten::add", "aten::sub", "aten::mul", "aten::div"))
#: Ops that take row numbers or a mask.
_BY_INDEX = frozenset(("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"))


def op_of(kernel: str) -> str:
    """The op that a kernel's name belongs to."""
    return kernel.partition(SUFFIX)[0]


def kernel_of(call: OpCall) -> str:
    """The op's name, with one of these suffixes where the operands select another kernel.

    - ``number``: a tensor and a Python number. In arithmetic, a tensor is made of the number first, which for a few
      elements takes as long as the rest. Put where an index says, it takes twice as long as numbers of a tensor.
    - ``mask``: elements that a mask selects. Searching the mask takes far less than reading as many row numbers. A sum
      of a mask counts in integers, which takes several times as long as a sum of floating-point numbers.
    - ``accumulate``: numbers that are added where they are put, as in the gradient of ``x[index]``. An accelerator
      sorts the row numbers first.
    - ``rows``: a batch norm of a matrix, whose channels are adjacent in memory. Its gradient treats each number as a
      plane of its own (``batch_norm_cpu_backward_contiguous_impl`` in ATen/native/cpu/batch_norm_kernel.cpp) and takes
      six times as long as that of images. Statistics are taken of whole rows, in half the time.
    """
    if "batch_norm" in call.op and max((len(t.shape) for t in call.inputs), default=0) == 2:
        return f"{call.op}{SUFFIX}rows"
    if has_scalar_operand(call) or (call.op.rstrip("_") == "aten::scatter" and len(call.inputs) == 2):
        return f"{call.op}{SUFFIX}number"
    if call.op == "aten::sum" and any(t.dtype == "bool" for t in call.inputs):
        return f"{call.op}{SUFFIX}mask"
    if call.op in _BY_INDEX and any(t.dtype == "bool" for t in call.inputs[1:]) and call.inputs[0].dtype != "bool":
        return f"{call.op}{SUFFIX}mask"
    if "index_put" in call.op and has_true_argument(call):
        return f"{call.op}{SUFFIX}accumulate"
    return call.op


def has_scalar_operand(call: OpCall) -> bool:
    """Whether one of two operands is a Python number."""
    return len(call.inputs) == 1 and call.op.rstrip("_") in _OF_TWO
