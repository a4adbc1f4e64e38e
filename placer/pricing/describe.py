"""Op calls -> ``Work``: the family of each call, its FLOPs and bytes, and the features it is compared by.

Calibration describes with it the ops it measures, pricing those it prices. An op that no family lists is never free: it
counts as ``other`` at the least, with the bytes of its operands as a floor.
"""

from __future__ import annotations

from placer.pricing.families import FAMILIES, family_of, per_core
from placer.pricing.kernels import kernel_of, op_of
from placer.pricing.operands import converted, largest, repeats
from placer.pricing.reuse_distance import reuse_share
from placer.pricing.step_context import CONTEXT_FLAGS, CONTEXT_SIZES, Context, Place, places
from placer.pricing.work import Work
from placer.tracing import OpCall, Trace, once_per_trace

#: Amounts of an op's place in its step, on which only a CPU spends time: it fetches evicted code again.
PLACE = ("evicted", "first", "reuse_distance")
#: Ops that take only the dtype and the device from their operand and read no element of it. Without the operand they
#: look elementwise, as they are.
_TEMPLATED = frozenset({"aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::new_empty"})


def describe(call: OpCall, context: Context) -> Work:
    """The family, work and features of one op call that stands in a step.

    An op that no family lists is a view when it only aliases, elementwise when its result is as large as its largest
    operand (as of most of PyTorch's two thousand ops), and ``other`` when neither holds.
    """
    name = family_of(call.op)
    if call.op in _TEMPLATED:
        call = call._replace(inputs=())
    if call.view and not call.in_place:
        name = "view"
    elif name is None:
        name = "elementwise" if _looks_elementwise(call) else "other"
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
    other_dtype = converted(call)
    forward = call.phase in ("forward", "loss")
    return Work(
        family=family.name,
        op=kernel_of(call),
        dtype=f"{dtype}+{other_dtype}" if other_dtype else dtype,
        flops=flops,
        bytes=family.moved_bytes(call),
        sizes=(*map(float, sizes), *context.sizes),
        flags=(
            *flags,
            float(call.kept_bytes > 0),
            float(context.recording and forward),
            float(repeats(call)),
            context.evicted if forward else 0.0,
            float(context.first),
        ),
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
        found = placed.get((id(work), place))
        if found is None:
            found = placed[id(work), place] = _at(place, work)
        result.append(found)
    return tuple(result)


@once_per_trace
def different_works(trace: Trace) -> tuple[tuple[Work, ...], tuple[int, ...]]:
    """The works of a step without repeats, and for every call the number of its work among them."""
    slots: dict[int, int] = {}
    order = tuple(slots.setdefault(id(work), len(slots)) for work in describe_step(trace))
    by_id = {id(work): work for work in describe_step(trace)}
    return tuple(by_id[known] for known in slots), order


def feature_names(family: str) -> tuple[str, ...]:
    """Names of the features that ``describe`` gives for ``family``: sizes first, then flags."""
    return (*FAMILIES[family].sizes, *CONTEXT_SIZES, *FAMILIES[family].flags, *CONTEXT_FLAGS)


def amounts(work: Work, threads: int = 1) -> dict[str, float]:
    """The amounts that an op's time is a sum over: FLOPs, bytes, and those of its context and its family.

    ``threads`` are the CPU's, among which the loops of some families are shared.
    """
    family = FAMILIES[work.family]
    fixed = {
        "flops": work.flops, "bytes": work.bytes, "evicted": work.flags[-2], "first": work.flags[-1],
        "reuse_distance": reuse_share(work.sizes[-1]),
    }  # fmt: skip
    shared = per_core(work, family.sharing, threads) if family.sharing is not None else {}
    own = {name: read(work) for name, read in (*family.amounts.items(), *family.cpu_amounts.items())}
    earlier = {name: read(work, threads) for name, read in family.earlier.items()}
    return {**fixed, **shared, **own, **earlier}


def ops_inside(work: Work) -> int:
    """How many ops the call stands for at the least: more than one where an op is kept whole."""
    return FAMILIES[work.family].dispatches(work)


def _at(place: Place, work: Work) -> Work:
    """``work``, described without a place, at ``place``."""
    return Work(
        work.family, work.op, work.dtype, work.flops, work.bytes,
        (*work.sizes[:-2], place.previous_bytes, place.reuse_bytes), (*work.flags[:-1], float(place.first)),
    )  # fmt: skip


def _key(call: OpCall) -> tuple[object, ...]:
    """What a call's work depends on."""
    forward = call.phase in ("forward", "loss")
    return call.op, call.inputs, call.outputs, call.args, call.view, call.in_place, call.kept_bytes > 0, forward


def _looks_elementwise(call: OpCall) -> bool:
    return largest(call.outputs) >= largest(call.inputs) or call.in_place
