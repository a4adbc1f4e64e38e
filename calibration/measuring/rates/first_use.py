"""What the first use of an accelerator in a process costs: its context, its libraries, and the first call of an op."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from placer import machine
from placer.calibration.measuring.rates.peaks import REFUSED
from placer.calibration.measuring.timing import Clock

#: Ops of one matrix whose kernels have not run before they are timed.
FIRST_CALLS: tuple[Callable[[torch.Tensor], object], ...] = (
    torch.exp, torch.sigmoid, torch.sum, torch.argmax, partial(torch.softmax, dim=1), partial(torch.cumsum, dim=1),
    partial(torch.clamp, min=0.0), partial(torch.sort, dim=1),
)  # fmt: skip

#: Libraries that are loaded when an op first needs them, by the name of their rate (``first_use/...``), and such an op:
#: cuDNN, cuBLASLt, cuFFT and cuSOLVER on CUDA devices.
LIBRARIES: dict[str, Callable[[str], object]] = {
    "convolution": lambda device: _convolved(device, 8),
    "product": lambda device: torch.addmm(torch.ones(8, device=device), *[torch.ones(8, 8, device=device)] * 2),
    "fourier": lambda device: torch.fft.rfft(torch.ones(8, 8, device=device)),
    "linear_algebra": lambda device: torch.linalg.solve(torch.eye(8, device=device), torch.ones(8, 8, device=device)),
}
#: Channels of convolutions of other shapes: for each a library looks for the fastest kernel when it comes first.
OTHER_CHANNELS = (16, 24, 48)


def first_use(device: str, synchronize: Callable[[], None], clock: Clock) -> dict[str, float]:
    """``memory_bytes``, and where this call was the process's first use ``context_seconds`` and ``first_call_seconds``.

    Creates the context if there is none: on most devices asking for the memory needs one. A new context loads its
    library of matrix products, which most networks need, and each kernel when it runs first. ``first_use/<library>`` is
    what loading another one takes (see ``LIBRARIES``), ``first_use/shape`` what a convolution of a new shape does. A
    library whose op the device refuses has no rate.
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

    def longer(fn: Callable[[], object]) -> float:
        return seconds(fn) - seconds(fn)

    calls = [longer(partial(op, square)) for op in FIRST_CALLS]
    rates |= {"context_seconds": took, "first_call_seconds": max(sum(calls) / len(calls), 0.0)}
    for name, op in LIBRARIES.items():
        try:
            rates[f"first_use/{name}"] = max(longer(partial(op, device)), 0.0)
        except REFUSED:
            continue
    if "first_use/convolution" in rates:
        shapes = [longer(partial(_convolved, device, channels)) for channels in OTHER_CHANNELS]
        rates["first_use/shape"] = max(statistics.median(shapes), 0.0)
    return rates


def _convolved(device: str, channels: int) -> Tensor:
    return F.conv2d(
        torch.ones(2, channels, 16, 16, device=device), torch.ones(channels, channels, 3, 3, device=device), padding=1
    )
