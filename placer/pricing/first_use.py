"""What a process pays once for the ops of a step on an accelerator: their first calls, and the libraries they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placer.pricing.families import family_of
from placer.tracing import OpCall

#: The library that runs a family's ops, by the name of its rate (``first_use/...``, see ``measuring.rates.first_use``).
_LIBRARIES = {
    "convolution": "convolution", "convolution_backward": "convolution", "recurrent": "convolution",
    "matmul": "product", "fourier": "fourier", "linear_algebra": "linear_algebra",
}  # fmt: skip


def first_calls_seconds(calls: Sequence[OpCall], rates: Mapping[str, float]) -> float:
    """Seconds that first calls take longer than later ones: of each op, and of each shape of a convolution."""
    shapes = {
        (call.op, tuple(t.shape for t in call.inputs), call.args)
        for call in calls
        if (family_of(call.op) or "").startswith("convolution")
    }
    ops = {call.op for call in calls}
    return len(ops) * rates.get("first_call_seconds", 0.0) + len(shapes) * rates.get("first_use/shape", 0.0)


def libraries_seconds(calls: Sequence[OpCall], rates: Mapping[str, float]) -> float:
    """Seconds to load the libraries that these calls need, in a process that has none of them."""
    needed = {_LIBRARIES.get(family_of(call.op) or "", "") for call in calls}
    return sum(rates.get(f"first_use/{name}", 0.0) for name in sorted(needed) if name)
