"""A priced step -> the same step run by ``torch.compile``: fused kernels, little Python, or one CUDA graph.

What compiling takes away follows from how the compiler works: memory traffic between fused ops (see ``fusion``), their
launches, the Python and the dispatch between ops, and autograd's nodes. Products, convolutions and attention stay calls
of the same libraries. The update, and a loss outside the model, stay eager. What compiled code costs the host is in
``compiled_host``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from placer.pricing.compiled_host import compilation_seconds, host_counts, loading_seconds
from placer.pricing.describe import known_labels, launches
from placer.pricing.families import FAMILIES
from placer.pricing.floors import floor_amounts, peak, roofline_parts
from placer.pricing.fusion import Place, places_in_kernels
from placer.pricing.prediction import Compilation, PricedTrace
from placer.pricing.work import Work
from placer.profile import DeviceFit, find_gpu
from placer.tracing import Trace

if TYPE_CHECKING:
    from placer.pricing.cost_model import CostModel

#: Kinds of devices on which compiled steps were measured, here or by others; of GPUs, NVIDIA's.
MEASURED_ON = ("cpu", "cuda")
#: Architectures before compute capability 7.0, the least that the compiler's Triton takes.
_TOO_OLD = frozenset(("kepler", "maxwell", "pascal"))
#: Modes that replay a CUDA graph: the host launches all kernels at once.
GRAPHS = ("reduce-overhead", "max-autotune")
#: Standard deviation of log(seconds) that compiling adds to a step: the spread of predicted over published speed-ups
#: of the networks that were looked at (RTX 4090), and over measured ones (one CPU); see docs/compiled.md.
DOUBT = {"cuda": 0.15, "cpu": 0.2}
#: The same for training and CUDA graphs on a GPU, of which nobody published both steps: a guess, twice the larger one.
_NOT_COMPARED = 0.4
#: Seconds to launch a CUDA graph: what a launch takes at the most in traces (``gpu.host``).
_GRAPH_LAUNCH = 10e-6
#: Seconds that inductor's C++ takes longer for an element than ATen, which has a vector library for it (one CPU, see
#: docs/compiled.md): a random number, and a hyperbolic tangent. Other functions take the same in both.
_SLOWER = {"random": 4.4e-9, "aten::tanh": 1.0e-9}
#: FLOPs at the peak rate whose time an op of one instruction takes for an element in a fused kernel: there is no
#: multiply-add, one of two units serves, and half of the instructions load, store or count (one CPU, docs/compiled.md).
_SIMPLE = 8.0
#: Families whose layout the compiler chooses (``torch._inductor.config.layout_optimization``).
_CONVOLUTIONS = ("convolution", "convolution_backward")


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
    if any(call.op.startswith(("aten::lstm", "aten::gru", "aten::rnn_")) for call in compiled):
        return "it has recurrent layers, around which the compiler leaves the code as it is"
    if len(trace.dataflow) != len(trace.calls):
        return "what its ops pass on to each other was not followed"
    return None


def compiled_step(priced: PricedTrace, model: CostModel) -> PricedTrace:
    """``priced``, an eager step, as its compiled form; as it is where that is not priced, which a note says."""
    trace, device = priced.trace, priced.device.partition(":")[0]
    if trace.compiled is None or not trace.calls:
        return priced
    why = not_priced(trace, priced.device, model.fit.gpu)
    if why is not None:
        note = f"on {model.fit.gpu or priced.device}, the compiled step is priced as an eager one: {why}"
        return replace(priced, trace=replace(trace, notes=(*trace.notes, note)))
    fit, works = model.fit, priced.works
    regions = [call.phase if call.phase in ("forward", "backward") else "" for call in trace.calls]
    places = places_in_kernels(trace, works, regions)
    laid_out = _laid_out(priced, model, regions)
    seconds = [
        _left(work, call.op, eager, place, fit) if place.kernel >= 0 else
        0.0 if region and work.family == "view" else other
        for work, call, eager, other, place, region in zip(
            works, trace.calls, priced.seconds, laid_out, places, regions, strict=True
        )
    ]  # fmt: skip
    host = [
        0.0 if region and (work.family == "view" or not (place.first or place.kernel < 0)) else issue
        for work, issue, place, region in zip(works, priced.host_seconds, places, regions, strict=True)
    ]
    graph = device == "cuda" and trace.compiled in GRAPHS
    if graph:
        host = _one_launch(host, regions)
        seconds[0] += 2.0 * trace.batch_bytes / fit.rates["bytes_per_second"]  # the graph reads from memory of its own
    note = _note(priced, places, fit.gpu or priced.device, graph=graph)
    return replace(
        priced,
        trace=replace(trace, notes=(*trace.notes, note)),
        seconds=tuple(seconds),
        host_seconds=tuple(host),
        counts=host_counts(trace, priced.seconds if device == "cpu" else host, works, places, regions, fit.framework),
        compilation=Compilation(
            loading_seconds(fit.framework), compilation_seconds(places, works, regions, fit.framework),
            _doubt(trace, device, graph=graph),
        ),
    )  # fmt: skip


def _doubt(trace: Trace, device: str, *, graph: bool) -> float:
    """Standard deviation of log(seconds) that compiling adds."""
    return _NOT_COMPARED if device == "cuda" and (graph or trace.mode == "train") else DOUBT[device]


def _note(priced: PricedTrace, places: Sequence[Place], name: str, *, graph: bool) -> str:
    fused, kernels = sum(place.kernel >= 0 for place in places), sum(place.first for place in places)
    ops = sum(work.family not in ("view", "optimizer") for work in priced.works)
    mode, end = priced.trace.compiled, "" if kernels == 1 else "s"
    note = f"on {name}, priced as compiled ({mode}): {fused} of {ops} ops in {kernels} kernel{end}"
    if graph:
        note += ", launched as a CUDA graph"
    return note if priced.device == "cpu" else f"{note}; that compiling these takes as long as on a CPU is a guess"


def _left(work: Work, op: str, eager: float, place: Place, fit: DeviceFit) -> float:
    """Seconds that a call takes inside a kernel of the compiler: its arithmetic, what is left of its traffic, and for
    the kernel's first call the start of the kernel."""
    start, arithmetic, traffic = parts_of(work, eager, fit)
    slower = 0.0
    if fit.device == "cpu":
        slower = work.sizes[0] * _SLOWER.get(work.family if work.family == "random" else op, 0.0)
    evaluated = (arithmetic + slower) * (2.0 if place.again else 1.0)
    return (start if place.first else 0.0) + evaluated + traffic * place.traffic


def parts_of(work: Work, seconds: float, fit: DeviceFit) -> tuple[float, float, float]:
    """(start, arithmetic, memory traffic): the parts of an op's seconds.

    On an accelerator an op that the compiler can fuse is bound by memory. On the CPU the parts are those of its floor.
    That cannot tell the arithmetic of an op of one instruction from its traffic: both grow with its elements.
    """
    if fit.device != "cpu":
        start = min(launches(work) * fit.rates["dispatch_seconds"], seconds)
        return start, 0.0, seconds - start
    family = fit.families.get(work.family)
    if family is None:
        start, arithmetic, traffic = roofline_parts(work, fit)
    else:
        start, arithmetic, traffic = _floor_parts(work, fit, family.parameters)
    total = start + arithmetic + traffic
    if total <= 0.0:
        return 0.0, 0.0, seconds
    start, arithmetic = seconds * start / total, seconds * arithmetic / total
    if work.family == "elementwise" and not FAMILIES[work.family].evaluates(work):
        arithmetic = min(_SIMPLE * work.flops / peak(work, fit.rates), seconds - start)
    return start, arithmetic, seconds - start - arithmetic


def _floor_parts(work: Work, fit: DeviceFit, parameters: Mapping[str, float]) -> tuple[float, float, float]:
    """(start, arithmetic, memory traffic) of an op's floor (see ``floors.floor_parts``)."""
    suffix = next((f"@{label}" for label in known_labels(work) if f"latency@{label}" in parameters), "")
    start, arithmetic, traffic = parameters[f"latency{suffix}"], 0.0, 0.0
    for name, amount in floor_amounts(work, fit.rates, threads=fit.threads).items():
        part = parameters.get(f"{name}{suffix}", 0.0) * amount
        if "flops" in name:
            arithmetic += part
        elif name in _AT_START:
            start += part
        else:
            traffic += part
    return start, arithmetic, traffic


#: Amounts of an op's floor that stand for starting it.
_AT_START = frozenset(("evicted", "first", "reuse_distance", "core_shared"))


def _laid_out(priced: PricedTrace, model: CostModel, regions: Sequence[str]) -> Sequence[float]:
    """The seconds of all calls where convolutions of images are laid out channels last.

    The compiler changes the layout where it expects to gain: of every network on a CPU; on a GPU not of one that trains
    with grouped convolutions (``torch._inductor.graph.GraphLowering.decide_layout_opt``).
    """
    works = priced.works
    which = [
        number for number, (work, region) in enumerate(zip(works, regions, strict=True))
        if region and work.family in _CONVOLUTIONS and not any(work.flags[:4])
    ]  # fmt: skip
    grouped = any(works[number].sizes[3] > 1.0 for number in which)
    if not which or (priced.device != "cpu" and priced.trace.mode == "train" and grouped):
        return priced.seconds
    last = [replace(works[n], flags=(*works[n].flags[:3], 1.0, *works[n].flags[4:])) for n in which]
    before, _, _ = model.price_works([works[n] for n in which])
    after, _, _ = model.price_works(last)
    seconds = list(priced.seconds)
    for number, old, new in zip(which, before, after, strict=True):
        seconds[number] += new - old
    return [max(each, 0.0) for each in seconds]


def _one_launch(host: Sequence[float], regions: Sequence[str]) -> list[float]:
    """The host's seconds where each compiled region is launched as one CUDA graph."""
    launched: set[str] = set()
    found = []
    for seconds, region in zip(host, regions, strict=True):
        found.append(seconds if not region else 0.0 if region in launched else _GRAPH_LAUNCH)
        launched.add(region)
    return found
