"""One op call as pricing sees it: its family, the amount of work, and the features it is compared by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """One op call in the terms of its family. ``flops`` counts a multiply-add as two, ``bytes`` reads and writes.

    ``op`` is the op's name, with a suffix where its operands select another kernel (see ``kernels.kernel_of``).
    ``dtype`` is that of its floating-point numbers, ``float32+bool`` where operands of another dtype are converted
    first.
    """

    family: str
    op: str
    dtype: str
    flops: float
    bytes: float
    #: Sizes (compared on a log scale) and flags (0 to 1), in the order of ``feature_names(family)``.
    sizes: tuple[float, ...]
    flags: tuple[float, ...]
