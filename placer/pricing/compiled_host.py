"""What a compiled step costs the host: guards and wrappers at every call, and the compilation itself, once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from placer.pricing.framework import framework_counts
from placer.pricing.fusion import FUSABLE, Place
from placer.pricing.work import Work
from placer.tracing import Trace

#: Seconds of a Python function (``framework``'s ``python_call``) on that CPU: another host takes these in proportion.
REFERENCE_CALL = 0.37e-6
#: How far apart two hosts are taken to be at the most.
_FARTHEST = 3.0
#: Seconds of compiling on that CPU: of loading the compiler, of any graph, for each op traced and lowered, and for each
#: C++ kernel, with the compiler's cache empty and two processes compiling (``docs/compiled.md``).
_LOADING, _PER_GRAPH, _PER_OP, _PER_KERNEL = 6.0, 0.5, 0.005, 0.3


def host_counts(
    trace: Trace, seconds: Sequence[float], works: Sequence[Work], places: Sequence[Place], regions: Sequence[str],
    framework: Mapping[str, float],
) -> dict[str, float]:  # fmt: skip
    """How often the framework's and the compiler's own code runs in one step.

    What is not compiled (``regions`` ""), the loss and the update, counts as in an eager step; a training step has a
    node of autograd for the compiled graph, and one for each parameter and op of the loss.
    """
    eager = [(call, s) for call, s, region in zip(trace.calls, seconds, regions, strict=True) if not region]
    train = trace.mode == "train"
    losses = sum(call.phase == "loss" for call, _ in eager)
    rest = replace(
        trace, calls=tuple(call for call, _ in eager), python_calls=0, evicted_calls=0.0, dataflow=(),
        autograd_nodes=1 + losses + len(trace.parameters) if train else 0,
    )  # fmt: skip
    found = framework_counts(rest, [s for _, s in eager])
    scale = speed(framework)
    library = sum(
        1 for work, place, region in zip(works, places, regions, strict=True)
        if region and place.kernel < 0 and work.family not in (*FUSABLE, "view")
    )  # fmt: skip
    found["compiled_call"] = scale * (2.0 if train else 1.0)
    found["compiled_training"] = scale * float(train)
    found["compiled_kernel"] = scale * sum(place.first for place in places)
    found["compiled_library"] = scale * library
    return found


def speed(framework: Mapping[str, float]) -> float:
    """How many times as long as on the reference host Python takes here."""
    ratio = framework.get("python_call", 0.0) / REFERENCE_CALL
    return min(max(ratio, 1.0 / _FARTHEST), _FARTHEST) if ratio > 0.0 else 1.0


def loading_seconds(framework: Mapping[str, float]) -> float:
    """Seconds until the compiler is loaded; 0.0 where this process has loaded it."""
    return 0.0 if "torch._inductor.compile_fx" in sys.modules else speed(framework) * _LOADING


def compilation_seconds(
    places: Sequence[Place], works: Sequence[Work], regions: Sequence[str], framework: Mapping[str, float]
) -> float:
    """Seconds of the first call: tracing and lowering the graphs, and compiling their kernels.

    What Triton takes for a kernel on a GPU was never measured here: it is taken to be what the C++ compiler takes.
    """
    ops = sum(1 for work, region in zip(works, regions, strict=True) if region and work.family != "view")
    kernels, graphs = sum(place.first for place in places), len(set(filter(None, regions)))
    return speed(framework) * (graphs * _PER_GRAPH + ops * _PER_OP + kernels * _PER_KERNEL)
