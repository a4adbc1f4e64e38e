"""The file of fitted numbers that comes with placer, and of which kernels it holds rows: by GPU, dtype and size."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from placer.pricing.gpu.physics import COLUMNS, Row

#: The fitted numbers that come with placer.
FILE = Path(__file__).parents[2] / "profile" / "catalog" / "published.json"


@cache
def document() -> Mapping[str, Any]:
    """The file as it is: ``edition``, ``rows``, ``ranges`` and ``networks``; without the file, none of them."""
    found: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
    return found


def edition() -> int:
    """A number that changes whenever the fitted networks do; 0 without any."""
    return int(document().get("edition", 0))


def row_name(row: Row) -> str:
    """What ranges are kept under: the label, and what a convolution computes, for which it has kernels of their own."""
    if row.kind not in ("convolution", "depthwise"):
        return row.label
    of = dict(zip(COLUMNS[row.kind], row.columns, strict=True))
    computes = "input" if of["to_input"] else "weight" if of["to_weight"] else "forward"
    return f"{row.label}:{computes}"


def row_size(row: Row) -> float:
    """log2 of FLOPs and bytes together."""
    flops, moved, *_ = row.columns
    return math.log2(max(flops + moved, 1.0))


def has_rows(gpu: str, row: Row, dtype: str) -> bool:
    """Whether rows of this name and dtype were published of this GPU, with sizes around this one."""
    ranges = document().get("ranges", {}).get(gpu, {}).get(row_name(row), {})
    low, high = ranges.get(dtype, (math.inf, -math.inf))
    return bool(low <= row_size(row) <= high)
