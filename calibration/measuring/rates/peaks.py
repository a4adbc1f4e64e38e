"""The most a device can do: floating point operations of matrix products, and bytes of a large copy, per second."""

from __future__ import annotations

import torch

from placer import machine
from placer.calibration.measuring.rates.timer import RateTimer

#: On an accelerator no tensor made here takes more than this share of its free memory.
MEMORY_SHARE = 1 / 16
#: A matrix product of this many seconds hides the launch: a larger one runs at the same rate.
LONG_PRODUCT = 5e-3


def flops_per_second(device: str, dtype: torch.dtype, timer: RateTimer) -> float | None:
    """Peak FLOP/s of square matrix products; None for a dtype that the device refuses."""
    best = None
    for n in (256, 512, 1024) if device == "cpu" else (1024, 4096, 8192):
        try:
            a = torch.randn(n, n, device=device).to(dtype)
            b = torch.randn(n, n, device=device).to(dtype)
            seconds = timer(lambda a=a, b=b: torch.mm(a, b), 0.3, best=True)  # type: ignore[misc]
        except RuntimeError:  # not implemented for this dtype here, or out of memory
            break
        rate = 2.0 * n**3 / seconds
        if best is not None and rate < best / 4:
            break
        best = max(rate, best or 0.0)
        if seconds > (0.05 if device == "cpu" else LONG_PRODUCT):  # the rate of a slow dtype is known well enough
            break
    return best


def bytes_per_second(device: str, timer: RateTimer) -> float:
    """Bandwidth of a copy far larger than any cache, counting bytes read and written (as STREAM does)."""
    elements = 16 << 20 if device == "cpu" else most_elements(device, 128 << 20)
    source = torch.ones(elements, device=device)
    target = torch.ones(elements, device=device)
    return 2.0 * source.nbytes / timer(lambda: target.copy_(source))


def most_elements(device: str, wanted: int) -> int:
    """``wanted`` float32 elements, or as many as an accelerator has room for."""
    return min(wanted, max(int(machine.memory(device)[0] * MEMORY_SHARE / 4), 1024))
