"""Sizes that fill no whole number of vector registers: kernels compute on the padding too."""

from __future__ import annotations

import math

#: float32 numbers in a vector register of AVX-512, and channels in a block of oneDNN's layouts.
REGISTER = 16


def padded(size: float) -> float:
    """How much larger a dimension is once it is rounded up to whole registers: a factor of 1 or more."""
    return math.ceil(size / REGISTER) * REGISTER / size if size > 0 else 1.0


def ragged(*sizes: int) -> float:
    """1.0 where one of these is no multiple of a register; a size of 1 has kernels of its own and does not count."""
    return float(any(size % REGISTER for size in sizes if size > 1))
