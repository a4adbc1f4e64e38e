"""``--batch`` and ``--sweep`` as the library wants them. A wrong text raises ValueError."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

#: Largest size a sweep goes to, and a shape may have in one dimension: beyond, it is a typing error.
MAX_SIZE = 2**40
#: dtypes an input may have, by the name behind the colon.
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64")

Shape = tuple[tuple[int, ...], str]


def parse_batch(text: str) -> Shape:
    """``"4,128:int64"`` -> ``((4, 128), "int64")``; the dtype is float32 when left out."""
    sizes, colon, dtype = text.partition(":")
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*,?\s*", sizes, re.ASCII):
        raise ValueError(
            f"--batch {text!r} is not a shape: whole numbers with commas between, like 32,84 or 4,128:int64"
        )
    name = dtype.strip() if colon else "float32"
    if name not in DTYPES:
        raise ValueError(f"--batch {text!r}: unknown dtype {name!r}; accepted: {', '.join(DTYPES)}")
    shape = tuple(int(size) for size in sizes.split(",") if size.strip())
    if max(shape) > MAX_SIZE:
        raise ValueError(f"--batch {text!r}: {max(shape)} is larger than any tensor")
    return shape, name


@dataclass(frozen=True)
class Range:
    """What a sweep varies (batch or steps; of a job repeats, or batch or count of a ``part``), and its values."""

    over: str
    values: tuple[int, ...]
    part: str = ""


def parse_sweep(text: str) -> Range:
    """``"batch=1:4096"``, ``"steps=1:4096"`` -> the powers of two between, both ends included; see ``Range``."""
    match = re.fullmatch(
        r"(?:(batch|steps|repeats)|(.+)\.(batch|count))=(\d{1,9}):(\d{1,9})", text.strip(), re.ASCII
    )
    if match is None:
        raise ValueError(
            f"--sweep {text!r} is not a range of batch sizes like batch=1:4096, or of steps=1:4096; "
            "of a job: repeats=1:4096, or PART.batch=1:4096, or PART.count=1:4096"
        )
    low, high = int(match[4]), int(match[5])
    if not 1 <= low <= high:
        raise ValueError(f"--sweep {text!r}: the range must start at 1 or more and not end below its start")
    powers = [2**n for n in range(low.bit_length(), high.bit_length())]
    values = tuple(sorted({low, high, *(n for n in powers if low <= n <= high)}))
    return Range(match[1] or match[3], values, match[2] or "")


def example(shapes: list[Shape], batch: int | None = None) -> tuple[Any, ...]:
    """Meta tensors of these shapes, as positional inputs; ``batch`` replaces the first size of each."""
    import torch

    resized = [((batch, *shape[1:]) if batch is not None else shape, dtype) for shape, dtype in shapes]
    return tuple(torch.empty(shape, dtype=getattr(torch, dtype), device="meta") for shape, dtype in resized)
