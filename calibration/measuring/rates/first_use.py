"""What the first use of an accelerator in a process costs: its context, and the first call of an op."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from placer import machine
from placer.calibration.measuring.timing import Clock

#: Ops of one matrix whose kernels have not run before they are timed.
FIRST_CALLS: tuple[Callable[[torch.Tensor], object], ...] = (
    torch.exp, torch.sigmoid, torch.sum, torch.argmax, partial(torch.softmax, dim=1), partial(torch.cumsum, dim=1),
    partial(torch.clamp, min=0.0), partial(torch.sort, dim=1),
)  # fmt: skip


def first_use(device: str, synchronize: Callable[[], None], clock: Clock) -> dict[str, float]:
    """``memory_bytes``, and where this call was the process's first use ``context_seconds`` and ``first_call_seconds``.

    Creates the context if there is none: on most devices asking for the memory needs one. A new context loads its
    library of matrix products, which most networks need, and each kernel when it runs first.
    """
    new = not machine.has_context(device)

    def seconds(fn: Callable[[], object]) -> float:
        start = clock()
        fn()
        synchronize()
        return clock() - start

    def product() -> None:
        square = torch.ones(8, 8, device=device)
        torch.mm(square, square)

    took = seconds(product)
    rates = {"memory_bytes": float(machine.memory(device)[1])}
    if not new:
        return rates
    square = torch.ones(8, 8, device=device)
    longer = [seconds(partial(op, square)) - seconds(partial(op, square)) for op in FIRST_CALLS]
    return {**rates, "context_seconds": took, "first_call_seconds": max(sum(longer) / len(longer), 0.0)}
