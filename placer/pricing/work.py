"""One op call as pricing sees it: its family, amounts and features, its kernel, and what its operands say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from placer.tracing import OpCall, TensorSpec

#: Ops of several operands that compute in one dtype (TensorIterator's ``promote_inputs_to_common_dtype``).
_PROMOTING = {
    f"aten::{name}"
    for name in (
        "add", "sub", "rsub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "pow", "atan2", "remainder", "fmod",
        "addcmul", "addcdiv", "eq", "ne", "lt", "le", "gt", "ge",
    )
}  # fmt: skip


def operand_bytes(call: OpCall) -> float:
    """Bytes that all operands and results move, each once."""
    return float(sum(t.touched_bytes for t in call.inputs) + sum(t.touched_bytes for t in call.outputs))


def largest(specs: tuple[TensorSpec, ...]) -> int:
    """Elements of the largest tensor; 0 where there is none."""
    return max((t.numel for t in specs), default=0)


def is_index(spec: TensorSpec) -> bool:
    """Whether a tensor holds indices or a mask, by its dtype."""
    return spec.dtype in ("int64", "int32", "bool", "uint8")


def has_true_argument(call: OpCall) -> bool:
    """Whether an argument is True: ``transposed`` of a convolution, ``training`` of a normalization. 1 is not True."""
    return any(argument is True for argument in call.args)


def repeats(call: OpCall) -> bool:
    """Whether an operand is expanded: it stores fewer elements than it has.

    Kernels copy such an operand first, or walk it element by element. The gradient of a sum is one: a single number,
    expanded to the shape of what was summed.
    """
    return any(not is_index(t) and 0 in t.stride and 1 < t.numel > t.stored_bytes // t.item_bytes for t in call.inputs)


def converted(call: OpCall) -> str:
    """The dtype of the operand that is first copied into another dtype, such as that of a mask in a product.

    "" where there is none. On the CPU the copy costs several times what the op itself does. Zero-dimensional operands
    are converted in place and do not count.
    """
    if len(call.inputs) < 2 or call.op.rstrip("_") not in _PROMOTING:
        return ""
    dtypes = {t.dtype: t.item_bytes for t in call.inputs if t.shape}
    common = max(dtypes, key=lambda name: ("complex" in name, "float" in name, dtypes[name]), default="")
    return next((t.dtype for t in call.inputs if t.shape and t.dtype != common), "")

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
    name, operands = call.op.rstrip("_"), len(call.inputs)
    if (name in _OF_TWO and operands == 1) or (name == "aten::scatter" and operands == 2):
        return f"{call.op}{SUFFIX}number"
    if call.op == "aten::sum" and any(t.dtype == "bool" for t in call.inputs):
        return f"{call.op}{SUFFIX}mask"
    if call.op in _BY_INDEX and any(t.dtype == "bool" for t in call.inputs[1:]) and call.inputs[0].dtype != "bool":
        return f"{call.op}{SUFFIX}mask"
    if "index_put" in call.op and has_true_argument(call):
        return f"{call.op}{SUFFIX}accumulate"
    return call.op


class Effort(NamedTuple):
    """What one op call does, whatever runs it.

    Attributes:
        flops: arithmetic, a multiply-add counted as two.
        bytes: read and written, every pass over an operand counted.
        kernels: those that follow each other on an accelerator; each waits for the one before.
        waits: times that the host waits for an accelerator inside the op.
        cycles: of one core of a CPU, operands in its caches.
        shared: whether torch shares the op among the cores of a CPU.
        kind: of op, as the table of ops has them.
        starts: rows, matrices or bags that are begun anew.
    """

    flops: float
    bytes: float
    kernels: float = 1.0
    waits: float = 0.0
    cycles: float = 0.0
    shared: bool = True
    kind: str = ""
    starts: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """One op call in the terms of its family. ``flops`` counts a multiply-add as two, ``bytes`` reads and writes.

    ``op`` is the op's name, with a suffix where its operands select another kernel (see ``kernel_of``).
    ``dtype`` is that of its floating-point numbers, ``float32+bool`` where operands of another dtype are converted
    first.
    """

    family: str
    op: str
    dtype: str
    flops: float
    bytes: float
    #: Sizes (compared on a log scale) and flags (0 to 1), in the order of ``feature_names(family)``.
    sizes: tuple[float, ...]
    flags: tuple[float, ...]
    #: What the table of ops says of the call (``op_table``); None of an op that is not in it.
    effort: Effort | None = None
    #: Loads that follow each other in the busiest thread of an accelerator (``dependent``).
    loads: float = 0.0
    #: Bytes of the largest result that the op makes anew.
    fresh: float = 0.0
