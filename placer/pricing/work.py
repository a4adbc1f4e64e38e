"""Op calls -> ``Work``: the row and the family of each call, its typed shape, FLOPs and bytes, and place in the step.

Calibration describes with it the ops it measures, pricing those it prices. An op that the table does not have is never
free: it counts as ``other`` at the least, with the bytes of its operands as a floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placer.pricing.effort import NOTHING, dependent_loads, effort
from placer.pricing.ops import SUFFIX, UPDATE_PREFIX, Effort, Op, family_of, row_of
from placer.pricing.shapes import FAMILIES
from placer.pricing.shapes.layers import Attention
from placer.pricing.shapes.moves import Other, Update
from placer.pricing.shapes.shape import (
    PLACE_FLAGS,
    PLACE_SIZES,
    Place,
    Work,
    flag_names,
    has_true_argument,
    is_index,
    largest,
    of_features,
    size_names,
)
from placer.tracing import OpCall, Trace, once_per_trace

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


def reuse_distances(ops: Sequence[tuple[str, float]]) -> list[float]:
    """The reuse distance of each op of a step, given (name, bytes or seconds) of all ops in order.

    It is the sum over the ops between this one and the last one of the same name. Steps follow each other: the first
    op of a name follows the last one of the step before.
    """
    now = -math.fsum(amount for _, amount in ops)
    ended: dict[str, float] = {}
    for op, amount in ops:
        now += amount
        ended[op] = now
    now = 0.0
    result = []
    for op, amount in ops:
        result.append(now - ended[op])
        now += amount
        ended[op] = now
    return result


@dataclass(frozen=True, slots=True)
class Context:
    """What an op call does not say about the step it stands in.

    - ``footprint_bytes``: parameters, gradients, optimizer state and activations. It decides whether operands that the
      step before touched are still in a cache.
    - ``recording``: whether autograd builds its graph around forward ops.
    - ``updates``: tensors that the optimizer updates. What a step does once is shared among them.
    - ``kinds``: different ops of the step. The code of a few stays in the nearest caches.
    - ``evicted``: share of the Python functions around forward ops whose code is evicted, and the op's own with it.
    """

    footprint_bytes: int
    recording: bool
    updates: int = 1
    kinds: int = 1
    evicted: float = 0.0

    @classmethod
    def of(cls, trace: Trace) -> Context:
        """What all ops of a step have in common."""
        return cls(
            footprint_bytes=trace.peak_bytes,
            recording=trace.mode == "train",
            updates=max(sum(map(is_update, trace.calls)), 1),
            kinds=max(len({call.op for call in trace.calls}), 1),
            evicted=min(trace.evicted_calls / max(trace.python_calls, 1), 1.0),
        )


def is_update(call: OpCall) -> bool:
    """Whether a call updates one parameter; its phase may hold other ops too."""
    return call.op.startswith(UPDATE_PREFIX)


def octave(nbytes: float) -> float:
    """Rounded to a power of two, 0 below 1. Calls whose places differ by less are priced once."""
    return 2.0 ** round(math.log2(nbytes)) if nbytes >= 1.0 else 0.0


def describe(call: OpCall, context: Context) -> Work:
    """The family, work and shape of one op call of a step, wherever in it the call stands (see ``Place``).

    An op of which the table says no family is a view when it only aliases, elementwise when its result is as large as
    its largest operand (as of most of PyTorch's two thousand ops), and ``other`` when neither holds.
    """
    row = row_of(call.op)
    if "template" in row.traits:  # it takes only the dtype and the device from its operand, and reads no element of it
        call = call._replace(inputs=())
    family = _family(call)
    try:
        shape = FAMILIES[family].shape.read(call, row)
        flops, moved = shape.flops, shape.traffic(call)
    except (IndexError, ValueError):  # an overload with other operands than those the family reads
        family, shape = "other", Other.read(call, row)
        flops, moved = shape.flops, shape.traffic(call)
    if isinstance(shape, Update):
        shape, moved = replace(shape, tensors=float(context.updates)), row.passes * call.inputs[0].stored_bytes
    try:
        does = NOTHING if family == "view" else effort(call, row, shape, flops, moved)
        loads = dependent_loads(call, row, shape)
    except (ArithmeticError, ValueError):  # one with other operands than the formulas of the row name
        does, loads = None, 0.0
    new = () if call.in_place or call.view else call.outputs
    return Work(
        family=family,
        op=kernel_of(call, row),
        dtype=dtype_of(call, row),
        flops=flops,
        bytes=moved,
        shape=shape,
        place=_place(call, context),
        effort=does,
        loads=loads,
        fresh=float(max((t.stored_bytes for t in new), default=0)),
        misses=_misses(call, row),
    )


def _place(call: OpCall, context: Context) -> Place:
    """What the step says of a call, wherever in it the call stands."""
    forward = call.phase in ("forward", "loss")
    return Place(
        footprint=context.footprint_bytes,
        kinds=float(context.kinds),
        kept=float(call.kept_bytes > 0),
        recording=float(context.recording and forward),
        repeated=float(repeats(call)),
        evicted=context.evicted if forward else 0.0,
    )


#: The share of numbers of which a core guesses wrong whether they are drawn, in what networks learnt from.
_USUAL_MISSES = 0.1


def _misses(call: OpCall, row: Op) -> float:
    """Numbers beyond the usual share of which a core guesses wrong whether they are drawn: those of the rarer case."""
    probability = call.args[0] if call.args and "draws_with" in row.traits else None
    if not isinstance(probability, float):
        return 0.0
    return largest(call.outputs) * max(min(probability, 1.0 - probability) - _USUAL_MISSES, 0.0)


def _family(call: OpCall) -> str:
    if call.view and not call.in_place:
        return "view"
    whole = largest(call.outputs) >= largest(call.inputs) or call.in_place
    return family_of(call.op) or ("elementwise" if whole else "other")


@once_per_trace
def describe_step(trace: Trace) -> tuple[Work, ...]:
    """The work of every call of a step, in order; equal work is one object."""
    context = Context.of(trace)
    alone: dict[tuple[object, ...], Work] = {}
    works: list[Work] = []
    for call in trace.calls:
        key = _key(call)
        work = alone.get(key)
        if work is None:
            work = alone[key] = describe(call, context)
        works.append(work)
    names = [op_of(work.op) for work in works]
    distances = reuse_distances([(name, work.bytes) for name, work in zip(names, works, strict=True)])
    # Steps follow each other, so the last op that moves something stands before the first.
    previous = next((work.bytes for work in reversed(works) if work.bytes), 0.0)
    before: set[str] = set()
    placed: dict[tuple[int, tuple[float, float, bool]], Work] = {}
    result: list[Work] = []
    for name, work, distance in zip(names, works, distances, strict=True):
        around = octave(previous), octave(distance), name not in before
        at_its_place = placed.get((id(work), around))
        if at_its_place is None:
            moved, reused, first = around
            place = work.place._replace(previous=moved, reuse_distance=reused, first=float(first))
            at_its_place = placed[id(work), around] = replace(work, place=place)
        result.append(at_its_place)
        before.add(name)
        previous = work.bytes or previous
    return tuple(result)


def _key(call: OpCall) -> tuple[object, ...]:
    """What a call's work depends on."""
    forward = call.phase in ("forward", "loss")
    return call.op, call.inputs, call.outputs, call.args, call.view, call.in_place, call.kept_bytes > 0, forward


@once_per_trace
def different_works(trace: Trace) -> tuple[tuple[Work, ...], tuple[int, ...]]:
    """The works of a step without repeats, and for every call the number of its work among them."""
    slots: dict[int, int] = {}
    order = tuple(slots.setdefault(id(work), len(slots)) for work in describe_step(trace))
    by_id = {id(work): work for work in describe_step(trace)}
    return tuple(by_id[number] for number in slots), order


def feature_names(family: str) -> tuple[str, ...]:
    """Names of the features that ``describe`` gives for ``family``: sizes first, then flags."""
    shape = FAMILIES[family].shape
    return (*size_names(shape), *PLACE_SIZES, *flag_names(shape), *PLACE_FLAGS)


def work_of_features(
    family: str, op: str, dtype: str, values: Sequence[float], effort: Effort | None = None, loads: float = 0.0
) -> Work:
    """The work that has these ``features``: its inverse, as far as they tell."""
    flops, moved, *rest = values
    shape_sizes = len(size_names(FAMILIES[family].shape))
    amounts = shape_sizes + len(PLACE_SIZES)
    sizes, flags = rest[:amounts], rest[amounts:]
    shape = of_features(FAMILIES[family].shape, sizes[:shape_sizes], flags[: -len(PLACE_FLAGS)])
    place = Place(*sizes[shape_sizes:], *flags[-len(PLACE_FLAGS) :])
    return Work(family, op, dtype, flops, moved, shape, place, effort, loads)


#: Suffixes that name another kernel on an accelerator too. Rows that are picked by a mask are searched by kernels of
#: their own there, and rows that are added up where they fall are put in order first.
_KEPT_SUFFIXES = frozenset(("mask", "accumulate", "foreach", "fused"))
#: Widest query that FlashAttention serves.
_WIDEST_FLASH = 256
_HALVES = ("bfloat16", "float16")


def on_accelerator(work: Work) -> Work:
    """The same op, as an accelerator's kernels are told apart. Applied twice it changes nothing more.

    Where an op stands in its step does not count: it decides which of its code and operands a core's caches hold, and
    an accelerator's kernels find their code in place.
    """
    op = op_of(work.op)
    keeps_suffix = work.suffix in _KEPT_SUFFIXES and work.family != "reduction"
    plain = replace(
        work,
        op=work.op if keeps_suffix else op,
        dtype=work.dtype.partition("+")[0],
        place=Place(footprint=work.place.footprint, kinds=0.0, repeated=work.place.repeated),
    )
    if isinstance(work.shape, Attention):
        return replace(plain, op=f"{op}{SUFFIX}{_backend(work.shape, plain.dtype)}")
    if isinstance(work.shape, Update) and not keeps_suffix and not work.updated_alone:
        if work.shape.fused:
            return replace(plain, op=f"{op}{SUFFIX}fused")
        _, longer = work.shape.listed(work.row)
        return replace(plain, op=f"{op}{SUFFIX}foreach", bytes=longer * work.bytes)
    return plain


def _backend(shape: Attention, dtype: str) -> str:
    """What runs attention, by dtype, mask and width of a query (ATen/native/transformers/cuda/sdp_utils.cpp).

    FlashAttention takes half precision without a mask, the memory-efficient kernel any mask where the width fills its
    loads of 16 bytes, and the rest is written out as products and exponentials.
    """
    half = dtype in _HALVES
    if half and not shape.masked and shape.width <= _WIDEST_FLASH:
        return "flash"
    loads = 8 if half else 4
    return "efficient" if dtype in ("float32", *_HALVES) and shape.width % loads == 0 else "math"
