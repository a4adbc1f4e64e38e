"""One op call as pricing sees it: its row of the table, its typed shape, its kernel, and its place in a step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from placer.pricing.ops import SUFFIX, Effort, Op, row_of
from placer.pricing.shapes import Shape, features, has_true_argument, is_index, size_names
from placer.tracing import OpCall


class Place(NamedTuple):
    """What the step around an op call says of it: features of every family.

    Attributes:
        footprint: bytes of parameters, gradients, optimizer state and activations of the step.
        kinds: different ops of the step. The code of a few stays in the nearest caches.
        previous: bytes that the op before moved through the caches, rounded to a power of two. The framework's code
            around a tiny op runs several times slower after a large one.
        reuse_distance: of the op's own code, in bytes moved, rounded likewise.
        kept: whether the result outlives its phase, so that its memory is fresh.
        recording: whether autograd builds its graph around the op.
        repeated: whether an operand is expanded (``repeats``).
        evicted: share of the code around the op, and of its own, that other code has evicted from the caches.
        first: whether no op of the same name ran before in the step. Its code is fetched in every step.
    """

    footprint: float
    kinds: float = 1.0
    previous: float = 0.0
    reuse_distance: float = 0.0
    kept: float = 0.0
    recording: float = 0.0
    repeated: float = 0.0
    evicted: float = 0.0
    first: float = 0.0


#: Of these, the amounts, which are compared on a log scale, and the flags and shares.
PLACE_SIZES, PLACE_FLAGS = Place._fields[:4], Place._fields[4:]


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
    shape: Shape
    place: Place
    #: What the table of ops says of the call; None of an op of which it does not.
    effort: Effort | None = None
    #: Loads that follow each other in the busiest thread of an accelerator.
    loads: float = 0.0
    #: Bytes of the largest result that the op makes anew.
    fresh: float = 0.0
    #: Numbers beyond the usual share of which a core guesses wrong whether they are drawn.
    misses: float = 0.0

    @property
    def row(self) -> Op:
        """The op's row in the table."""
        return row_of(self.op)

    @property
    def suffix(self) -> str:
        """The suffix of its kernel; "" of most."""
        return self.op.partition(SUFFIX)[2]

    @property
    def features(self) -> tuple[float, ...]:
        """FLOPs, bytes, the sizes of its shape and place, then their flags: see ``describe.feature_names``."""
        own, sizes, of_place = features(self.shape), len(size_names(type(self.shape))), len(PLACE_SIZES)
        return self.flops, self.bytes, *own[:sizes], *self.place[:of_place], *own[sizes:], *self.place[of_place:]

    @property
    def updated_alone(self) -> bool:
        """Whether an accelerator updates a tensor by kernels of its own, not those of all tensors."""
        return self.family == "optimizer" and self.effort is not None and self.effort.kernels > 1.0


#: The suffix of a kernel that adds numbers where they are put.
ACCUMULATE = "accumulate"


def op_of(kernel: str) -> str:
    """The op that a kernel's name belongs to."""
    return kernel.partition(SUFFIX)[0]


def kernel_of(call: OpCall, op: Op) -> str:
    """The op's name, with one of these suffixes where the operands select another kernel. The table says which can be.

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
    suffix = _suffix(call, op) if op.has_kernels else ""
    return f"{call.op}{SUFFIX}{suffix}" if suffix else call.op


def _suffix(call: OpCall, op: Op) -> str:
    if len(call.inputs) == op.number("number") - 1:
        return "number"
    if "channels" in op.traits and max((len(t.shape) for t in call.inputs), default=0) == 2:
        return "rows"
    if "counts" in op.traits and any(t.dtype == "bool" for t in call.inputs):
        return "mask"
    by_mask = any(t.dtype == "bool" for t in call.inputs[1:]) and call.inputs[0].dtype != "bool"
    if "mask" in op.traits and by_mask:  # one that accumulates is searched all the same
        return "mask"
    return ACCUMULATE if "accumulates" in op.traits and has_true_argument(call) else ""


def repeats(call: OpCall) -> bool:
    """Whether an operand is expanded: it stores fewer elements than it has.

    Kernels copy such an operand first, or walk it element by element. The gradient of a sum is one: a single number,
    expanded to the shape of what was summed.
    """
    return any(not is_index(t) and 0 in t.stride and 1 < t.numel > t.stored_bytes // t.item_bytes for t in call.inputs)


def dtype_of(call: OpCall, op: Op) -> str:
    """The dtype of a call's floating-point numbers, ``float32+bool`` where an operand is converted first.

    Complex operands have kernels of their own, also where the result is real: of their absolute values, for example.
    """
    complex_ones = (t.dtype for t in call.inputs if "complex" in t.dtype)
    floats = (t.dtype for t in (*call.outputs, *call.inputs) if "float" in t.dtype)
    dtype, other = next(complex_ones, "") or next(floats, "float32"), converted(call, op)
    return f"{dtype}+{other}" if other else dtype


def converted(call: OpCall, op: Op) -> str:
    """The dtype of the operand that is first copied into another dtype, such as that of a mask in a product.

    "" where there is none, as of ops that do not compute in one dtype (TensorIterator's
    ``promote_inputs_to_common_dtype``). On the CPU the copy costs several times what the op itself does.
    Zero-dimensional operands are converted in place and do not count.
    """
    if len(call.inputs) < 2 or "promotes" not in op.traits:
        return ""
    dtypes = {t.dtype: t.item_bytes for t in call.inputs if t.shape}
    common = max(dtypes, key=lambda name: ("complex" in name, "float" in name, dtypes[name]), default="")
    return next((t.dtype for t in call.inputs if t.shape and t.dtype != common), "")


#: Separates an op's name from its variant.
VARIANT = "/"


def op_label(work: Work) -> str:
    """The name that an op's costs are fitted under: ``op``, ``op/variant``, ``op:dtype`` or ``op/variant:dtype``.

    A variant is another op, and so is any dtype but float32. Whether an op writes in place is a feature, not a name.
    """
    op, dot, kernel = work.op.partition(SUFFIX)
    name, variant = f"{op.rstrip('_')}{dot}{kernel}", work.shape.variant
    if variant:
        name = f"{name}{VARIANT}{variant}"
    return name if work.dtype == "float32" else f"{name}:{work.dtype}"


def known_labels(work: Work) -> tuple[str, ...]:
    """The names a fit may know an op by, closest first: its own, then the one without its kernel's suffix."""
    label = op_label(work)
    name, dot, rest = label.partition(SUFFIX)
    if not dot:
        return (label,)
    _, colon, dtype = rest.partition(":")
    return label, f"{name}{colon}{dtype}"


def inputs_of(work: Work) -> tuple[float, ...]:
    """The inputs of one op to a model: amounts and sizes on a log2 scale, flags as they are."""
    values, sizes = work.features, 2 + len(size_names(type(work.shape))) + len(PLACE_SIZES)
    return (*(math.log2(1.0 + amount) for amount in values[:sizes]), *values[sizes:])
