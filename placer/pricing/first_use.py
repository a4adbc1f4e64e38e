"""What a process pays once for the ops of a step on an accelerator: their first calls, and the libraries they need."""

from __future__ import annotations

from collections.abc import Mapping

from placer.pricing.families import family_of
from placer.tracing import Trace, once_per_trace

#: The library that runs a family's ops, by the name of its rate (``first_use/...``, see ``measuring.rates.first_use``).
_LIBRARIES = {
    "convolution": "convolution", "convolution_backward": "convolution", "recurrent": "convolution",
    "matmul": "product", "fourier": "fourier", "linear_algebra": "linear_algebra",
}  # fmt: skip


def first_calls_seconds(trace: Trace, rates: Mapping[str, float]) -> float:
    """Seconds that first calls take longer than later ones: of each op, and of each shape of a convolution."""
    return len(_ops(trace)) * rates.get("first_call_seconds", 0.0) + _shapes(trace) * rates.get("first_use/shape", 0.0)


def libraries_seconds(trace: Trace, rates: Mapping[str, float]) -> float:
    """Seconds to load the libraries that a step needs, in a process that has none of them."""
    needed = {_LIBRARIES.get(family_of(op) or "", "") for op in _ops(trace)}
    return sum(rates.get(f"first_use/{name}", 0.0) for name in sorted(needed) if name)


@once_per_trace
def _ops(trace: Trace) -> frozenset[str]:
    return frozenset(call.op for call in trace.calls)


@once_per_trace
def _shapes(trace: Trace) -> int:
    """Different convolutions of a step."""
    return len({
        (call.op, tuple(t.shape for t in call.inputs), call.args)
        for call in trace.calls
        if (family_of(call.op) or "").startswith("convolution")
    })  # fmt: skip
