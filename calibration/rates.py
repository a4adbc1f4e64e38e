"""The numbers a data sheet would give: peak arithmetic, memory bandwidth, dispatch, launch, synchronisation, copies.

They anchor the physical floor under every op, and a person can check them against the machine's specification.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable

import torch

from placer.calibration.timing import Timing, measure

#: Dtypes whose matrix-product rate is measured; a dtype the device refuses is left out and priced by the floor.
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def synchronizer(device: str) -> Callable[[], None] | None:
    """Waits for the device's queue; None on the CPU, which has none."""
    if device == "cpu":
        return None
    return lambda: torch.accelerator.synchronize(device)


def measure_rates(device: str, *, seconds: float) -> tuple[dict[str, float], list[Timing]]:
    """All rates of one device within about ``seconds``: FLOP/s, bytes/s and seconds, as named in a ``DeviceFit``."""
    sync = synchronizer(device)
    share = seconds / 13
    timings: list[Timing] = []

    def time(fn: Callable[[], object], factor: float = 1.0, *, best: bool = False) -> float:
        timing = measure(fn, synchronize=sync, max_seconds=share * factor)
        timings.append(timing)
        # A peak is what the device can do: threads that have not spread over the cores yet are not part of it.
        return timing.p10 if best else timing.median

    rates: dict[str, float] = {}
    for dtype in DTYPES:
        rate = _peak(device, dtype, time)
        if rate is not None:
            rates[f"flops/{str(dtype).removeprefix('torch.')}"] = rate
    rates["bytes_per_second"] = _bandwidth(device, time)
    tiny = torch.ones(8, device=device)
    out = torch.empty_like(tiny)
    rates["dispatch_seconds"] = time(lambda: torch.neg(tiny, out=out))
    if sync is None:
        rates["fresh_seconds_per_byte"] = _fresh_memory(time)
    else:
        rates.update(_queue(device, sync, share))
        rates.update(_copies(device, time))
    return rates, timings


def _peak(device: str, dtype: torch.dtype, time: Callable[..., float]) -> float | None:
    best = None
    for n in (256, 512, 1024) if device == "cpu" else (1024, 4096, 8192):
        try:
            a = torch.randn(n, n, device=device).to(dtype)
            b = torch.randn(n, n, device=device).to(dtype)
            seconds = time(lambda a=a, b=b: torch.mm(a, b), 0.3, best=True)
        except RuntimeError:  # not implemented for this dtype here, or out of memory
            break
        rate = 2.0 * n**3 / seconds
        if best is not None and rate < best / 4:
            break
        best = max(rate, best or 0.0)
        if seconds > 0.05:  # a slow dtype is known well enough
            break
    return best


def _bandwidth(device: str, time: Callable[..., float]) -> float:
    """Of a copy far larger than any cache, counting bytes read and written (as STREAM does)."""
    elements = 16 << 20 if device == "cpu" else 128 << 20
    source = torch.ones(elements, device=device)
    target = torch.ones(elements, device=device)
    return 2.0 * source.nbytes / time(lambda: target.copy_(source))


def _fresh_memory(time: Callable[..., float]) -> float:
    """What a byte costs more on pages the system has just given and takes back afterwards, in seconds."""
    nbytes = 64 << 20
    warm = torch.empty(nbytes // 4)

    def fresh() -> None:
        with contextlib.closing(mmap.mmap(-1, nbytes, **_PRIVATE)) as pages:
            torch.frombuffer(pages, dtype=torch.float32).fill_(1.0)

    return max(time(fresh) - time(lambda: warm.fill_(1.0), 0.5), 0.0) / nbytes


#: Memory of this process alone, as ``malloc`` asks for it.
_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def _queue(device: str, sync: Callable[[], None], share: float) -> dict[str, float]:
    """Time to issue a launch on an empty queue, the delay until a kernel starts, the cost of waiting for nothing."""
    tiny = torch.ones(8, device=device)
    idle = measure(sync, max_seconds=share / 2).median
    burst = measure(lambda: [tiny.neg_() for _ in range(64)], synchronize=sync, max_seconds=share)

    def launch_and_wait() -> None:
        tiny.neg_()
        sync()

    single = measure(launch_and_wait, max_seconds=share).median
    per_launch = burst.median / 64
    return {
        "launch_seconds": max(single - idle - per_launch, 0.0),
        "sync_seconds": idle,
        "issue_seconds": burst.host_seconds / 64,
    }


def _copies(device: str, time: Callable[..., float]) -> dict[str, float]:
    """A cost per tensor and one per byte, for each direction, from pageable and from pinned memory."""
    rates: dict[str, float] = {}
    small, large = 64, 16 << 20
    for memory in ("pageable", "pinned"):
        for direction in ("h2d", "d2h"):
            seconds = {}
            for elements in (small, large):
                try:
                    host = torch.ones(elements, pin_memory=memory == "pinned")
                except RuntimeError:  # no pinned memory on this accelerator
                    return rates
                card = torch.ones(elements, device=device)
                source, target = (host, card) if direction == "h2d" else (card, host)
                seconds[elements] = time(lambda s=source, t=target: t.copy_(s), 0.5)
            prefix = f"copy/{direction}/{memory}"
            rates[f"{prefix}/seconds_per_tensor"] = seconds[small]
            rates[f"{prefix}/bytes_per_second"] = 4.0 * (large - small) / max(seconds[large] - seconds[small], 1e-9)
    return rates
