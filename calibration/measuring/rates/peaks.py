"""The most a device can do: floating point operations of matrix products, and bytes of a large copy, per second."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from placer import machine
from placer.calibration.measuring.timing import RateTimer

#: On an accelerator no tensor made here takes more than this share of its free memory.
MEMORY_SHARE = 1 / 16
#: A matrix product of this many seconds hides the launch: a larger one runs at the same rate.
LONG_PRODUCT = 5e-3
#: What a device raises for a dtype that it lacks: a TypeError for float64 on Apple's. ``NotImplementedError`` is a
#: RuntimeError.
REFUSED = (RuntimeError, TypeError)


def flops_per_second(device: str, dtype: torch.dtype, timer: RateTimer, *, tf32: bool = False) -> float | None:
    """Peak FLOP/s of square matrix products; None for a dtype that the device refuses.

    float32 is multiplied as such on an accelerator, whatever this process is set to, or (``tf32``) in TF32.
    """
    best = None
    for n in (256, 512, 1024) if device == "cpu" else (1024, 4096, 8192):
        try:
            a = torch.randn(n, n, device=device).to(dtype)
            b = torch.randn(n, n, device=device).to(dtype)
            with contextlib.nullcontext() if device == "cpu" else products_in_tf32(tf32):
                seconds = timer(lambda a=a, b=b: torch.mm(a, b), 0.3, best=True)  # type: ignore[misc]
        except REFUSED:  # not implemented for this dtype here, or out of memory
            break
        rate = 2.0 * n**3 / seconds
        if best is not None and rate < best / 4:
            break
        best = max(rate, best or 0.0)
        if seconds > (0.05 if device == "cpu" else LONG_PRODUCT):  # the rate of a slow dtype is known well enough
            break
    return best


@contextlib.contextmanager
def products_in_tf32(on: bool) -> Iterator[None]:
    """Let CUDA multiply float32 matrices in TF32 (``on``) or not, until the context is left.

    torch 2.9 and later have a switch for CUDA's products alone. It is used where there is one: torch refuses to answer
    the older switches where they contradict it.
    """
    products = torch.backends.cuda.matmul
    newer = hasattr(products, "fp32_precision")
    name, value = ("fp32_precision", "tf32" if on else "ieee") if newer else ("allow_tf32", on)
    before = getattr(products, name)
    setattr(products, name, value)
    try:
        yield
    finally:
        setattr(products, name, before)


def bytes_per_second(device: str, timer: RateTimer) -> float:
    """Bandwidth of a copy far larger than any cache, counting bytes read and written (as STREAM does)."""
    elements = 16 << 20 if device == "cpu" else most_elements(device, 128 << 20)
    source = torch.ones(elements, device=device)
    target = torch.ones(elements, device=device)
    return 2.0 * source.nbytes / timer(lambda: target.copy_(source))


def most_elements(device: str, wanted: int) -> int:
    """``wanted`` float32 elements, or as many as an accelerator has room for."""
    return min(wanted, max(int(machine.memory(device)[0] * MEMORY_SHARE / 4), 1024))
