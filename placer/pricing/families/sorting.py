"""Sorting, top-k, and scans such as ``cumsum``."""

from __future__ import annotations

import math

from placer.pricing.families.family import Family, aten
from placer.pricing.families.softmax import FLAGS, SIZES, read_rows
from placer.pricing.work import Work


def _compared(work: Work) -> float:
    """Comparisons: elements x log2 of the row."""
    numel, row = work.sizes[:2]
    return numel * math.log2(2.0 + row)


FAMILY = Family(
    name="sorting",
    ops=aten(
        "sort argsort topk cumsum cumprod cummax cummin logcumsumexp median kthvalue unique _unique2 unique_dim"
    ),
    sizes=SIZES,
    flags=FLAGS,
    read=read_rows,
    amounts={"compared": _compared},
)
