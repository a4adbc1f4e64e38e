"""A priced step -> the same step run by ``torch.compile``: less memory traffic, another layout, little Python.

The compiler runs ops that compute each result from a few elements, and reductions, in one kernel with what makes their
operands, unless a library's product or convolution stands between them. Such a kernel reads what comes from outside
once, and writes what others read (Ansel et al., "PyTorch 2", ASPLOS 2024). Products, convolutions and attention stay
calls of the same libraries; convolutions of images are laid out channels last. The update, and a loss outside the
model, stay eager. What is left of Python and the dispatcher was measured on one CPU (docs/compiled.md).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placer.pricing.framework import framework_counts
from placer.pricing.ops import row_of
from placer.pricing.physics import evaluates, op_parts
from placer.pricing.prediction import Compilation, PricedTrace
from placer.pricing.shapes import FAMILIES
from placer.pricing.shapes.loops import Windows
from placer.pricing.shapes.products import Convolution
from placer.pricing.shapes.shape import Work
from placer.profile import Device, find_gpu
from placer.tracing import OpCall, Trace

if TYPE_CHECKING:
    from placer.pricing.cost_model import CostModel

#: Families whose ops the compiler writes kernels for. All others stay calls of a library.
FUSABLE = frozenset(name for name, family in FAMILIES.items() if family.fusable)
#: Kinds of devices on which compiled steps were measured, here or by others; of GPUs, NVIDIA's.
MEASURED_ON = ("cpu", "cuda")
#: Architectures before compute capability 7.0, the least that the compiler's Triton takes.
_TOO_OLD = frozenset(("kepler", "maxwell", "pascal"))
#: Modes that replay a CUDA graph: the host launches all kernels at once, in so many seconds.
GRAPHS, _GRAPH_LAUNCH = ("reduce-overhead", "max-autotune"), 10e-6
#: Standard deviation of log(seconds) that compiling adds to a step: the spread of predicted over published speed-ups
#: (RTX 4090) and over measured ones (one CPU). Nobody published both steps of training or of CUDA graphs on a GPU.
DOUBT, _NOT_COMPARED = {"cuda": 0.15, "cpu": 0.2}, 0.4
#: Seconds of a Python function (``framework``'s ``python_call``) on the measured CPU: another host takes what was
#: measured there in proportion, within ``_FARTHEST``.
REFERENCE_CALL, _FARTHEST = 0.37e-6, 3.0
#: Seconds of compiling there: of loading the compiler, of any graph, for each op, and for each kernel.
_LOADING, _PER_GRAPH, _PER_OP, _PER_KERNEL = 6.0, 0.5, 0.005, 0.3


@dataclass(frozen=True)
class Member:
    """A call in a compiled step: its kernel (None: not the compiler's) and the share of its traffic that is left."""

    kernel: int | None = None
    traffic: float = 1.0


def not_priced(trace: Trace, device: str, gpu: str = "") -> str | None:
    """Why a compiled step is priced as an eager one on ``device``; None where it is priced as compiled.

    ``gpu`` is the catalog's name of the device; "" where it is none of the catalog.
    """
    mode, kind = trace.compiled or "", device.partition(":")[0]
    sheet = find_gpu(gpu) if gpu else None
    compiled = [call for call in trace.calls if call.phase in ("forward", "backward")]
    if mode.startswith("backend"):
        return f"{mode} is not the default one, inductor"
    if kind not in MEASURED_ON:
        return f"nobody measured the compiler on {kind}"
    if sheet is not None and sheet.vendor != "nvidia":
        return f"nobody measured the compiler on a GPU like {sheet.name}"
    if sheet is not None and sheet.architecture in _TOO_OLD:
        return f"the compiler does not run on {sheet.name}, whose compute capability is below 7.0"
    if any(call.syncs for call in compiled):
        return "it reads values in Python, which breaks the compiler's graph in parts"
    if any(row_of(call.op).family == "recurrent" for call in compiled):
        return "it has recurrent layers, around which the compiler leaves the code as it is"
    if len(trace.dataflow) != len(trace.calls):
        return "what its ops pass on to each other was not followed"
    return None


def compiled_step(priced: PricedTrace, model: CostModel) -> PricedTrace:
    """``priced``, an eager step, as its compiled form; as it is where that is not priced, which a note says."""
    trace, fit, works = priced.trace, model.fit, priced.works
    if trace.compiled is None or not trace.calls:
        return priced
    name = fit.gpu or priced.device
    why = not_priced(trace, priced.device, fit.gpu)
    if why is not None:
        note = f"on {name}, the compiled step is predicted as an eager one: {why}"
        return replace(priced, trace=replace(trace, notes=(*trace.notes, note)))
    regions = [call.phase if call.phase in ("forward", "backward") else "" for call in trace.calls]
    places = places_in_kernels(trace, works, regions)
    eager = _channels_last(priced, model, regions)
    graph = fit.device != "cpu" and trace.compiled in GRAPHS
    seconds, host = [], []
    begun: set[int | str] = set()
    for work, region, place, seconds_alone, issue in zip(
        works, regions, places, eager, priced.host_seconds, strict=True
    ):
        first = place.kernel is not None and place.kernel not in begun
        if place.kernel is not None:
            start, arithmetic, traffic = parts_of(work, seconds_alone, fit)
            seconds_alone = (start if first else 0.0) + arithmetic + traffic * place.traffic
            issue = issue if first else 0.0
            begun.add(place.kernel)
        elif region and work.family == "view":
            seconds_alone = issue = 0.0
        if region and graph:
            issue = 0.0 if region in begun else _GRAPH_LAUNCH
            begun.add(region)
        seconds.append(seconds_alone)
        host.append(issue)
    if graph:  # it reads from memory of its own
        seconds[0] += 2.0 * trace.batch_bytes / fit.rates["bytes_per_second"]
    kernels = len({place.kernel for place in places if place.kernel is not None})
    fused = sum(place.kernel is not None for place in places)
    ops = sum(work.family not in ("view", "optimizer") for work in works)
    note = f"on {name}, predicted as compiled ({trace.compiled}): {fused} of {ops} ops in {kernels} kernel"
    note += ("" if kernels == 1 else "s") + (", launched as a CUDA graph" if graph else "")
    if fit.device != "cpu":
        note += "; that compiling these takes as long as on a CPU is a guess"
    compared = fit.device == "cpu" or not (graph or trace.mode == "train")
    python = _python_speed(fit.framework)
    traced = sum(1 for work, region in zip(works, regions, strict=True) if region and work.family != "view")
    loaded = "torch._inductor.compile_fx" in sys.modules
    return replace(
        priced,
        trace=replace(trace, notes=(*trace.notes, note)),
        seconds=tuple(seconds),
        host_seconds=tuple(host),
        counts=host_counts(trace, priced.seconds if fit.device == "cpu" else host, works, places, regions, python),
        compilation=Compilation(
            loading=0.0 if loaded else python * _LOADING,
            seconds=python * (len(set(filter(None, regions))) * _PER_GRAPH + traced * _PER_OP + kernels * _PER_KERNEL),
            doubt=DOUBT["cpu" if fit.device == "cpu" else "cuda"] if compared else _NOT_COMPARED,
        ),
    )


def places_in_kernels(trace: Trace, works: Sequence[Work], regions: Sequence[str]) -> list[Member]:
    """The place of every call of a step. ``regions`` name the graph that each call is compiled in; "" is eager."""
    kernels, makers = _kernels(trace, works, regions)
    outside: set[int] = set(trace.output_values)  # values that are read elsewhere than in the kernel that makes them
    used: set[int] = set()
    for work, kernel, (reads, _) in zip(works, kernels, trace.dataflow, strict=True):
        if work.family != "view":
            used.update(reads)
            outside.update(value for value in reads if value in makers and kernels[makers[value]] != kernel)
    read: set[tuple[int, int]] = set()
    places = []
    for call, kernel, (reads, writes) in zip(trace.calls, kernels, trace.dataflow, strict=True):
        if kernel is None or len(reads) != len(call.inputs) or len(writes) != len(call.outputs):
            places.append(Member(kernel))
            continue
        total = left = 0
        for value, spec in zip(reads, call.inputs, strict=True):
            total += spec.stored_bytes
            made_inside = value in makers and kernels[makers[value]] == kernel
            if not made_inside and (kernel, value) not in read:
                left += spec.stored_bytes
                read.add((kernel, value))
        for value, spec in zip(writes, call.outputs, strict=True):
            total += spec.stored_bytes
            left += spec.stored_bytes if value in outside or value not in used else 0
        places.append(Member(kernel, left / total if total else 0.0))
    return places


def _kernels(trace: Trace, works: Sequence[Work], regions: Sequence[str]) -> tuple[list[int | None], dict[int, int]]:
    """(The number of every call's kernel, None of what the compiler writes none for; the call that makes each value).

    A kernel is what hangs together at one depth: the number of steps before a call that no kernel can join.
    """
    kernels: list[int | None] = []
    depths: list[int] = []
    makers: dict[int, int] = {}
    for number, (work, (reads, writes)) in enumerate(zip(works, trace.dataflow, strict=True)):
        sources = {makers[value] for value in reads if value in makers}
        hosts = {n for n in sources if _joins(number, n, trace, works, regions)}
        depth = max((depths[n] + (n not in hosts) for n in sources), default=0)
        joined = {kernels[n] for n in hosts if depths[n] == depth}
        depths.append(depth)
        kernels.append(number if regions[number] and work.family in FUSABLE else None)
        if joined:
            kernels = [number if kernel in joined else kernel for kernel in kernels]
        if work.family != "view":
            makers.update(dict.fromkeys(writes, number))
    return kernels, makers


def _joins(number: int, maker: int, trace: Trace, works: Sequence[Work], regions: Sequence[str]) -> bool:
    """Whether a call can run in the kernel that makes its operand.

    A window reads what another kernel has written; so does a larger op, unless its operand is elementwise.
    """
    if not regions[number] or regions[number] != regions[maker] or isinstance(works[number].shape, Windows):
        return False
    if works[number].family not in FUSABLE or works[maker].family not in FUSABLE:
        return False
    return works[maker].family == "elementwise" or _elements(trace.calls[number]) <= _elements(trace.calls[maker])


def _elements(call: OpCall) -> int:
    """Elements that a kernel walks over for a call."""
    return max((t.numel for t in (*call.outputs, *call.inputs)), default=0)


def parts_of(work: Work, seconds: float, fit: Device) -> tuple[float, float, float]:
    """(start, arithmetic, memory traffic): the parts of an op's seconds.

    On an accelerator an op that the compiler can fuse is bound by memory. On the CPU the parts are those of its floor;
    of an op of one instruction for each element, all but the start is traffic.
    """
    if fit.device != "cpu":
        start = min(work.shape.launches(work) * fit.rates["dispatch_seconds"], seconds)
        return start, 0.0, seconds - start
    start, arithmetic, traffic = op_parts(work, seconds, fit)
    if work.family == "elementwise" and not evaluates(work):
        return start, 0.0, arithmetic + traffic
    return start, arithmetic, traffic


def _channels_last(priced: PricedTrace, model: CostModel, regions: Sequence[str]) -> Sequence[float]:
    """The seconds of all calls where convolutions of images are laid out channels last.

    The compiler changes the layout where it expects to gain: of every network on a CPU; on a GPU not of one that trains
    with grouped convolutions (``torch._inductor.graph.GraphLowering.decide_layout_opt``).
    """
    before: dict[int, Work] = {}
    after: list[Work] = []
    grouped = False
    for number, (work, region) in enumerate(zip(priced.works, regions, strict=True)):
        shape = work.shape
        if not region or not isinstance(shape, Convolution):
            continue
        if not (shape.one_d or shape.three_d or shape.transposed or shape.strided):  # strided: channels last already
            before[number] = work
            after.append(replace(work, shape=replace(shape, strided=True)))
            grouped = grouped or shape.groups > 1.0
    if not before or (priced.device != "cpu" and priced.trace.mode == "train" and grouped):
        return priced.seconds
    old, _, _ = model.price_works(list(before.values()))
    new, _, _ = model.price_works(after)
    seconds = list(priced.seconds)
    for number, was, becomes in zip(before, old, new, strict=True):
        seconds[number] += becomes - was
    return [max(value, 0.0) for value in seconds]


def host_counts(
    trace: Trace,
    seconds: Sequence[float],
    works: Sequence[Work],
    places: Sequence[Member],
    regions: Sequence[str],
    python: float,
) -> dict[str, float]:
    """How often the framework's and the compiler's own code runs in one step; ``python`` scales the latter.

    What is not compiled, the loss and the update, counts as in an eager step; a training step has a node of autograd
    for the compiled graph, and one for each parameter and op of the loss.
    """
    eager = [(call, s) for call, s, region in zip(trace.calls, seconds, regions, strict=True) if not region]
    train = trace.mode == "train"
    losses = sum(call.phase == "loss" for call, _ in eager)
    rest = replace(
        trace,
        calls=tuple(call for call, _ in eager),
        python_calls=0,
        evicted_calls=0.0,
        dataflow=(),
        autograd_nodes=1 + losses + len(trace.parameters) if train else 0,
    )
    counts = framework_counts(rest, [s for _, s in eager])
    library = sum(
        1 for work, region in zip(works, regions, strict=True) if region and work.family not in (*FUSABLE, "view")
    )
    counts["compiled_call"] = python * (2.0 if train else 1.0)
    counts["compiled_training"] = python * float(train)
    counts["compiled_kernel"] = python * len({place.kernel for place in places if place.kernel is not None})
    counts["compiled_library"] = python * library
    return counts


def _python_speed(framework: Mapping[str, float]) -> float:
    """How many times as long as on the measured host Python takes here."""
    ratio = framework.get("python_call", 0.0) / REFERENCE_CALL
    return min(max(ratio, 1.0 / _FARTHEST), _FARTHEST) if ratio > 0.0 else 1.0
