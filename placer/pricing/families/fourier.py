"""Fourier transforms, real and complex, of one or more dimensions."""

from __future__ import annotations

import math

from placer.pricing.families.family import Family, Features, aten
from placer.tracing import OpCall


def _read(call: OpCall) -> Features:
    """FLOPs: 5 x elements x log2(length) (Cooley & Tukey, 1965)."""
    signal = max((*call.inputs, *call.outputs), key=lambda t: t.numel)
    dims = next((argument for argument in call.args if isinstance(argument, tuple)), (-1,))
    length = math.prod(signal.shape[d] for d in dims if isinstance(d, int)) or 1
    flops = 5.0 * signal.numel * math.log2(2.0 + length)
    return Features(flops, (signal.numel, length), (float(not signal.contiguous),))


FAMILY = Family(
    name="fourier",
    ops=aten("_fft_r2c _fft_c2r _fft_c2c"),
    sizes={"numel": "elements of the larger side", "length": "points of one transform"},
    flags={"strided": "the larger side is not contiguous"},
    read=_read,
)
