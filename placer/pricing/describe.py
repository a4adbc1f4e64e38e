"""Op calls -> ``Work``: the family of each call, its FLOPs and bytes, and the features it is compared by.

Calibration describes with it the ops it measures, pricing those it prices. An op that no family lists is never free: it
counts as ``other`` at the least, with the bytes of its operands as a floor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from placer.pricing.dependent import dependent_loads
from placer.pricing.families import FAMILIES, family_of, parameter_updates
from placer.pricing.families.products import OPS_IN_TIME_STEP, recurrent_launches, time_steps, variant
from placer.pricing.op_amounts import quantized
from placer.pricing.op_table import NOTHING, effort
from placer.pricing.work import SUFFIX, Work, converted, kernel_of, largest, op_of, repeats
from placer.profile import DeviceFit
from placer.tracing import OpCall, Trace, once_per_trace

#: log2 of the bytes up to which an op's code stays in the nearest cache, and of those after which no cache holds it.
NEAREST, NONE = 14.0, 24.0


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


def reuse_share(reuse_bytes: float) -> float:
    """How far out the code of an op is evicted at this reuse distance: 0 (nearest cache) to 1 (no cache holds it)."""
    return min(max((math.log2(1.0 + reuse_bytes) - NEAREST) / (NONE - NEAREST), 0.0), 1.0)


#: Features every family has besides its own (see ``Context``, ``Place``). ``kept``: the result outlives its phase, so
#: its memory is fresh. ``repeated``: an operand is expanded (``work.repeats``).
CONTEXT_SIZES = ("footprint", "kinds", "previous", "reuse_distance")
CONTEXT_FLAGS = ("kept", "recording", "repeated", "evicted", "first")


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
        updates = sum(map(parameter_updates.is_update, trace.calls))
        return cls(
            footprint_bytes=trace.peak_bytes,
            recording=trace.mode == "train",
            updates=max(updates, 1),
            kinds=max(len({call.op for call in trace.calls}), 1),
            evicted=min(trace.evicted_calls / max(trace.python_calls, 1), 1.0),
        )


class Place(NamedTuple):
    """What differs between equal ops in different places of a step. Bytes are rounded to powers of two.

    - ``previous_bytes``: what the op before moved through the caches. The framework's code around a tiny op runs
      several times slower after a large one.
    - ``reuse_bytes``: the reuse distance of the op's own code, in bytes moved.
    - ``first``: whether no op of the same name ran before in the step. The code of the first is fetched in every step.
    """

    previous_bytes: float
    reuse_bytes: float
    first: bool


def places(ops: Sequence[tuple[str, float]]) -> list[Place]:
    """The place of each op of a step, given (name, bytes moved) of all ops in order. Steps follow each other."""
    previous = next((nbytes for _, nbytes in reversed(ops) if nbytes), 0.0)
    names: set[str] = set()
    result = []
    for (op, nbytes), distance in zip(ops, reuse_distances(ops), strict=True):
        result.append(Place(octave(previous), octave(distance), op not in names))
        names.add(op)
        previous = nbytes or previous
    return result


def octave(nbytes: float) -> float:
    """Rounded to a power of two, 0 below 1. Calls whose places differ by less are priced once."""
    return 2.0 ** round(math.log2(nbytes)) if nbytes >= 1.0 else 0.0

#: Ops that take only the dtype and the device from their operand and read no element of it. Without the operand they
#: look elementwise, as they are.
_TEMPLATED = frozenset({"aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::new_empty"})


def describe(call: OpCall, context: Context) -> Work:
    """The family, work and features of one op call of a step, wherever in it the call stands (see ``Place``).

    An op that no family lists is a view when it only aliases, elementwise when its result is as large as its largest
    operand (as of most of PyTorch's two thousand ops), and ``other`` when neither holds.
    """
    name = family_of(call.op)
    if call.op in _TEMPLATED:
        call = call._replace(inputs=())
    if call.view and not call.in_place:
        name = "view"
    elif name is None:
        whole = largest(call.outputs) >= largest(call.inputs) or call.in_place
        name = "elementwise" if whole else "other"
    family = FAMILIES[name]
    try:
        flops, sizes, flags = family.read(call)
    except (IndexError, ValueError):  # an overload with other operands than those the family reads
        family = FAMILIES["other"]
        flops, sizes, flags = family.read(call)
    if family.name == "optimizer":
        sizes = (sizes[0], float(context.updates))
    # Complex operands have kernels of their own, also where the result is real: of their absolute values, for example.
    complex_ones = [t.dtype for t in call.inputs if "complex" in t.dtype]
    floats = (t.dtype for t in (*call.outputs, *call.inputs) if "float" in t.dtype)
    dtype = complex_ones[0] if complex_ones else next(floats, "float32")
    other_dtype, moved = converted(call), family.moved_bytes(call)
    # Packed weights are no parameters of the step.
    footprint = context.footprint_bytes + (quantized(call).packed if family.name == "quantized" else 0.0)
    forward = call.phase in ("forward", "loss")
    return Work(
        family=family.name,
        op=kernel_of(call),
        dtype=f"{dtype}+{other_dtype}" if other_dtype else dtype,
        flops=flops,
        bytes=moved,
        sizes=(*map(float, sizes), float(footprint), float(context.kinds), 0.0, 0.0),
        flags=(
            *flags,
            float(call.kept_bytes > 0),
            float(context.recording and forward),
            float(repeats(call)),
            context.evicted if forward else 0.0,
            0.0,
        ),
        effort=NOTHING if family.name == "view" else effort(call, flops, moved),
        loads=dependent_loads(call),
        fresh=0.0 if call.in_place or call.view else float(max((t.stored_bytes for t in call.outputs), default=0)),
    )


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
    placed: dict[tuple[int, Place], Work] = {}
    result: list[Work] = []
    for work, place in zip(works, places([(op_of(work.op), work.bytes) for work in works]), strict=True):
        at_its_place = placed.get((id(work), place))
        if at_its_place is None:
            at_its_place = placed[id(work), place] = _at(place, work)
        result.append(at_its_place)
    return tuple(result)


@once_per_trace
def different_works(trace: Trace) -> tuple[tuple[Work, ...], tuple[int, ...]]:
    """The works of a step without repeats, and for every call the number of its work among them."""
    slots: dict[int, int] = {}
    order = tuple(slots.setdefault(id(work), len(slots)) for work in describe_step(trace))
    by_id = {id(work): work for work in describe_step(trace)}
    return tuple(by_id[number] for number in slots), order


def feature_names(family: str) -> tuple[str, ...]:
    """Names of the features that ``describe`` gives for ``family``: sizes first, then flags."""
    return (*FAMILIES[family].sizes, *CONTEXT_SIZES, *FAMILIES[family].flags, *CONTEXT_FLAGS)


def ops_inside(work: Work) -> int:
    """How many ops the call stands for at the least: more than one where an op is kept whole."""
    if work.family == "optimizer":
        return parameter_updates.OPS_IN_UPDATE
    return max(int(OPS_IN_TIME_STEP * time_steps(work)), 1) if work.family == "recurrent" else 1


def _at(place: Place, work: Work) -> Work:
    """``work``, described without a place, at ``place``."""
    return Work(
        work.family, work.op, work.dtype, work.flops, work.bytes,
        (*work.sizes[:-2], place.previous_bytes, place.reuse_bytes), (*work.flags[:-1], float(place.first)),
        work.effort, work.loads, work.fresh,
    )  # fmt: skip


def _key(call: OpCall) -> tuple[object, ...]:
    """What a call's work depends on."""
    forward = call.phase in ("forward", "loss")
    return call.op, call.inputs, call.outputs, call.args, call.view, call.in_place, call.kept_bytes > 0, forward


#: Separates an op's name from its variant.
VARIANT = "/"


def op_label(work: Work) -> str:
    """The name that an op's costs are fitted under: ``op``, ``op/variant``, ``op:dtype`` or ``op/variant:dtype``.

    A variant is another op, and so is any dtype but float32. Whether an op writes in place is a feature, not a name.
    """
    op, dot, kernel = work.op.partition(SUFFIX)
    name, variant_name = f"{op.rstrip('_')}{dot}{kernel}", variant(work)
    if variant_name:
        name = f"{name}{VARIANT}{variant_name}"
    return name if work.dtype == "float32" else f"{name}:{work.dtype}"


def known_labels(work: Work) -> tuple[str, ...]:
    """The names a fit may know an op by, closest first: its own, then the one without its kernel's suffix."""
    label = op_label(work)
    name, dot, rest = label.partition(SUFFIX)
    if not dot:
        return (label,)
    _, colon, dtype = rest.partition(":")
    return label, f"{name}{colon}{dtype}"


def fitted_features(family: str) -> tuple[str, ...]:
    """Names of the inputs, in order; () for a family this version does not know."""
    return ("flops", "bytes", *feature_names(family)) if family in FAMILIES else ()


def inputs_of(work: Work) -> tuple[float, ...]:
    """The inputs of one op: amounts and sizes on a log2 scale, flags as they are."""
    sizes = (work.flops, work.bytes, *work.sizes)
    return (*(math.log2(1.0 + a) for a in sizes), *work.flags)


def foreign_family(fit: DeviceFit) -> str | None:
    """A family that was fitted on other features than this version describes ops by; None where there is none."""
    return next((name for name, f in fit.families.items() if f.feature_names != fitted_features(name)), None)

#: Suffixes that name another kernel on an accelerator too. Rows that are picked by a mask are searched by kernels of
#: their own there, and rows that are added up where they fall are sorted first.
_KEPT_SUFFIXES = frozenset(("mask", "accumulate", "foreach", "fused"))
#: Widest query that FlashAttention serves.
_WIDEST_FLASH = 256
_HALVES = ("bfloat16", "float16")


def on_accelerator(work: Work) -> Work:
    """The same op, as an accelerator's kernels are told apart. Applied twice it changes nothing more.

    Where an op stands in its step does not count: it decides which of its code and operands a core's caches hold, and
    an accelerator's kernels find their code in place.
    """
    op, dot, suffix = work.op.partition(SUFFIX)
    kept = bool(dot) and suffix in _KEPT_SUFFIXES and work.family != "reduction"
    *sizes, footprint, _, _, _ = work.sizes
    *flags, _, _, repeated, _, _ = work.flags
    plain = replace(
        work, op=work.op if kept else op, dtype=work.dtype.partition("+")[0],
        sizes=(*sizes, footprint, 0.0, 0.0, 0.0), flags=(*flags, 0.0, 0.0, repeated, 0.0, 0.0),
    )  # fmt: skip
    if work.family == "attention":
        return replace(plain, op=f"{op}{SUFFIX}{_backend(plain)}")
    if work.family == "optimizer" and not kept and not updated_alone(work):
        return _updated_together(plain)
    return plain


def launches(work: Work) -> float:
    """Kernels that a call stands for at the least; of an update, one tensor's share of those that update all."""
    if work.family == "optimizer":
        if work.effort is not None and updated_alone(work):
            return work.effort.kernels
        momentum, weight_decay, fused = work.flags[:3]
        ops, _ = parameter_updates.foreach(
            work.op.partition(SUFFIX)[0], momentum=bool(momentum), weight_decay=bool(weight_decay)
        )
        tensors = max(work.sizes[1], 1.0)
        return (1 if fused else ops) * math.ceil(tensors / parameter_updates.TENSORS_PER_LAUNCH) / tensors
    return recurrent_launches(work) if work.family == "recurrent" else 1.0


def updated_alone(work: Work) -> bool:
    """Whether an accelerator updates a tensor by kernels of its own, not those of all tensors."""
    return work.family == "optimizer" and work.effort is not None and work.effort.kernels > 1.0


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
