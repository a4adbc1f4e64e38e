"""The numbers a data sheet would give: peak arithmetic, memory bandwidth, dispatch, launch, synchronisation, copies.

They anchor the physical floor under every op, and a person can check them against the machine's specification.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from placer import machine
from placer.calibration.measuring.queueing import measure_queue
from placer.calibration.measuring.timing import Clock, Timing, measure
from placer.placement import synchronize

#: Dtypes whose matrix-product rate is measured; a dtype the device refuses is left out and priced by the floor.
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


#: On an accelerator no tensor made here takes more than this share of its free memory.
MEMORY_SHARE = 1 / 16
#: Ops of one matrix whose kernels nothing has run before they are timed.
FIRST_CALLS: tuple[Callable[[torch.Tensor], object], ...] = (
    torch.exp, torch.sigmoid, torch.sum, torch.argmax, partial(torch.softmax, dim=1), partial(torch.cumsum, dim=1),
    partial(torch.clamp, min=0.0), partial(torch.sort, dim=1),
)  # fmt: skip
#: What all rates of a device take, in times of what one of them may.
SHARES = 13
#: Bytes that are taken, written and given back to tell what fresh pages cost: few enough to be counted many times.
FRESH_BYTES = 16 << 20
#: A matrix product of this many seconds leaves nothing of the launch to see: a larger one runs at the same rate.
LONG_PRODUCT = 5e-3


def synchronizer(device: str) -> Callable[[], None] | None:
    """Waits for the device's queue; None on the CPU, which has none."""
    return None if device == "cpu" else partial(synchronize, device)


def measure_rates(
    device: str, *, seconds: float, clock: Clock = time.perf_counter
) -> tuple[dict[str, float], list[Timing]]:
    """All rates of one device within about ``seconds``: FLOP/s, bytes/s and seconds, as named in a ``DeviceFit``.

    On an accelerator also ``memory_bytes``, and where this call was the process's first use of it ``context_seconds``
    and ``first_call_seconds``: what the first call of an op takes longer than later ones.
    """
    sync = synchronizer(device)
    share = seconds / SHARES
    timings: list[Timing] = []

    def timed(fn: Callable[[], object], factor: float = 1.0, *, best: bool = False) -> float:
        timing = measure(fn, synchronize=sync, max_seconds=share * factor, clock=clock)
        timings.append(timing)
        # A peak is what the device can do: threads that have not spread over the cores yet are not part of it.
        return timing.p10 if best else timing.median

    rates = {} if sync is None else _first_use(device, sync, clock)
    pages = _Pages(partial(timed, factor=1 / 4, best=True)) if sync is None else None
    for dtype in DTYPES:
        rate = _peak(device, dtype, timed)
        if rate is not None:
            rates[f"flops/{str(dtype).removeprefix('torch.')}"] = rate
        if pages is not None:
            pages.count()
    rates["bytes_per_second"] = _bandwidth(device, timed)
    if sync is not None:
        rates.update(measure_queue(device, sync, seconds=2.0 * share, clock=clock))
        rates.update(_copies(device, timed))
    if pages is not None:
        tiny = torch.ones(8)
        out = torch.empty_like(tiny)
        rates["dispatch_seconds"] = timed(lambda: torch.neg(tiny, out=out), best=True)
        pages.count()
        rates["fresh_seconds_per_byte"] = pages.seconds_per_byte()
    return rates, timings


def counted_again(rates: Mapping[str, float], *, seconds: float, clock: Clock = time.perf_counter) -> dict[str, float]:
    """``rates`` of the CPU, measured within about ``seconds``, with fresh pages at what they cost now if that is less.

    It is the one rate that no sample corrects: calibration's own steps hardly touch a fresh page.
    """

    def timed(fn: Callable[[], object]) -> float:
        return measure(fn, max_seconds=seconds / SHARES / 4, clock=clock).p10

    pages = _Pages(timed)
    for _ in range(3):
        pages.count()
    before = rates.get("fresh_seconds_per_byte", math.inf)
    return {**rates, "fresh_seconds_per_byte": min(before, pages.seconds_per_byte())}


def _first_use(device: str, sync: Callable[[], None], clock: Clock) -> dict[str, float]:
    """Creates the device's context, if there is none yet, and asks for its memory, which needs one on most devices.

    A new context loads its library of matrix products, which most networks need, and each kernel when it is first run.
    """
    new = not machine.has_context(device)

    def seconds(fn: Callable[[], object]) -> float:
        start = clock()
        fn()
        sync()
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


def _most_elements(device: str, wanted: int) -> int:
    """``wanted`` float32 elements, or what the device has room for."""
    return min(wanted, max(int(machine.memory(device)[0] * MEMORY_SHARE / 4), 1024))


def _peak(device: str, dtype: torch.dtype, timed: Callable[..., float]) -> float | None:
    best = None
    for n in (256, 512, 1024) if device == "cpu" else (1024, 4096, 8192):
        try:
            a = torch.randn(n, n, device=device).to(dtype)
            b = torch.randn(n, n, device=device).to(dtype)
            seconds = timed(lambda a=a, b=b: torch.mm(a, b), 0.3, best=True)
        except RuntimeError:  # not implemented for this dtype here, or out of memory
            break
        rate = 2.0 * n**3 / seconds
        if best is not None and rate < best / 4:
            break
        best = max(rate, best or 0.0)
        if seconds > (0.05 if device == "cpu" else LONG_PRODUCT):  # a slow dtype is known well enough
            break
    return best


def _bandwidth(device: str, timed: Callable[..., float]) -> float:
    """Of a copy far larger than any cache, counting bytes read and written (as STREAM does)."""
    elements = 16 << 20 if device == "cpu" else _most_elements(device, 128 << 20)
    source = torch.ones(elements, device=device)
    target = torch.ones(elements, device=device)
    return 2.0 * source.nbytes / timed(lambda: target.copy_(source))


class _Pages:
    """What a byte costs more on pages the system has just given and takes back afterwards.

    The fastest count of several moments: what a virtual machine has not used lately it gets from its host first, at ten
    times the cost, and for longer than one count takes.
    """

    def __init__(self, timed: Callable[[Callable[[], object]], float]) -> None:
        self._timed = timed
        self._warm = torch.empty(FRESH_BYTES // 4)
        self._on_fresh = self._on_warm = math.inf

    def count(self) -> None:
        """Count once more."""
        self._on_fresh = min(self._on_fresh, self._timed(_write_fresh))
        self._on_warm = min(self._on_warm, self._timed(lambda: self._warm.fill_(1.0)))

    def seconds_per_byte(self) -> float:
        """Of the fastest count so far."""
        return max(self._on_fresh - self._on_warm, 0.0) / FRESH_BYTES


def _write_fresh() -> None:
    with contextlib.closing(mmap.mmap(-1, FRESH_BYTES, **_PRIVATE)) as pages:
        torch.frombuffer(pages, dtype=torch.float32).fill_(1.0)


#: Memory of this process alone, as ``malloc`` asks for it.
_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def _copies(device: str, timed: Callable[..., float]) -> dict[str, float]:
    """A cost per tensor and one per byte, for each direction, from pageable and from pinned memory.

    Copies run as placer issues them: from pinned memory to the device without waiting, all others until they are done.
    """
    rates: dict[str, float] = {}
    small, large = 64, _most_elements(device, 16 << 20)
    for memory in ("pageable", "pinned"):
        for direction in ("h2d", "d2h"):
            seconds = {}
            for elements in (small, large):
                host = torch.ones(elements)
                if memory == "pinned":
                    try:
                        host = host.pin_memory()
                    except RuntimeError:  # no pinned memory on this accelerator
                        return rates
                card = torch.ones(elements, device=device)
                source, target = (host, card) if direction == "h2d" else (card, host)
                waits = memory == "pageable" or direction == "d2h"
                seconds[elements] = timed(lambda s=source, t=target, w=waits: t.copy_(s, non_blocking=not w), 0.5)
            prefix = f"copy/{direction}/{memory}"
            rates[f"{prefix}/seconds_per_tensor"] = seconds[small]
            rates[f"{prefix}/bytes_per_second"] = 4.0 * (large - small) / max(seconds[large] - seconds[small], 1e-9)
    return rates
