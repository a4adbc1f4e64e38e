"""All rates of one device, measured in a given time."""

from __future__ import annotations

import contextlib
import math
import mmap
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from placer.calibration.measuring.clocks import WARM, keep_busy
from placer.calibration.measuring.health import synchronizer
from placer.calibration.measuring.rates.first_use import first_use
from placer.calibration.measuring.rates.peaks import bytes_per_second, flops_per_second, most_elements
from placer.calibration.measuring.rates.queueing import measure_queue
from placer.calibration.measuring.timing import Clock, RateTimer

#: Dtypes whose matrix-product rate is measured; a dtype the device refuses is left out and priced by the floor.
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
#: What a byte costs more on pages that the system has just given and takes back afterwards: a rate that no sample
#: corrects, since calibration's own steps hardly touch a fresh page.
_FRESH = "fresh_seconds_per_byte"
#: Bytes that are taken, written and given back: few enough to be counted many times.
FRESH_BYTES = 16 << 20
#: Memory of this process alone, as ``malloc`` asks for it.
_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def measure_rates(device: str, *, seconds: float, clock: Clock = time.perf_counter) -> dict[str, float]:
    """All rates of one device within about ``seconds``: FLOP/s, bytes/s and seconds, as named in a ``DeviceFit``.

    On an accelerator also ``memory_bytes`` and ``flops/tf32``, and where this call was the process's first use of it
    ``context_seconds``, ``first_call_seconds`` and ``first_use/...`` (see ``first_use``).
    """
    synchronize = synchronizer(device)
    timer = RateTimer(synchronize, seconds, clock)
    rates = {} if synchronize is None else first_use(device, synchronize, clock)
    if synchronize is not None and clock is time.perf_counter:
        keep_busy(device, WARM, clock)
    pages = _fresh_pages(timer) if synchronize is None else None
    for dtype in DTYPES:
        rate = flops_per_second(device, dtype, timer)
        if rate is not None:
            rates[f"flops/{str(dtype).removeprefix('torch.')}"] = rate
        if pages is not None:
            pages.count()
    if synchronize is not None:
        tf32 = flops_per_second(device, torch.float32, timer, tf32=True)
        if tf32 is not None:
            rates["flops/tf32"] = tf32
    rates["bytes_per_second"] = bytes_per_second(device, timer)
    if synchronize is not None:
        rates.update(measure_queue(device, synchronize, seconds=2.0 * timer.share, clock=clock))
        rates.update(_copy_rates(device, timer))
    if pages is not None:
        tiny = torch.ones(8)
        out = torch.empty_like(tiny)
        rates["dispatch_seconds"] = timer(lambda: torch.neg(tiny, out=out), best=True)
        pages.count()
        rates[_FRESH] = pages.seconds_per_byte()
    return rates


def _copy_rates(device: str, timer: RateTimer) -> dict[str, float]:
    """What a copy costs: ``copy/{h2d,d2h}/{pageable,pinned}/`` seconds_per_tensor and bytes_per_second.

    Copies run as placer issues them: from pinned memory to the device without waiting, all others until they are done.
    """
    rates: dict[str, float] = {}
    small, large = 64, most_elements(device, 16 << 20)
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
                seconds[elements] = timer(lambda s=source, t=target, w=waits: t.copy_(s, non_blocking=not w), 0.5)  # type: ignore[misc]
            prefix = f"copy/{direction}/{memory}"
            rates[f"{prefix}/seconds_per_tensor"] = seconds[small]
            rates[f"{prefix}/bytes_per_second"] = 4.0 * (large - small) / max(seconds[large] - seconds[small], 1e-9)
    return rates


def recount_fresh_pages(
    rates: Mapping[str, float], *, seconds: float, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """``rates`` of the CPU, measured within ``seconds``, with what fresh pages cost now if that is less than before."""
    pages = _fresh_pages(RateTimer(None, seconds, clock))
    for _ in range(3):
        pages.count()
    return {**rates, _FRESH: min(rates.get(_FRESH, math.inf), pages.seconds_per_byte())}


def _fresh_pages(timer: RateTimer) -> FreshPages:
    return FreshPages(partial(timer, shares=1 / 4, best=True))


class FreshPages:
    """Counts the cost of fresh pages at several moments and keeps the least.

    A virtual machine gets memory that it has not used lately from its host first. That takes ten times as long, and
    lasts longer than one count. ``timed`` returns the seconds of a function.
    """

    def __init__(self, timed: Callable[[Callable[[], object]], float]) -> None:
        self._timed = timed
        self._warm = torch.empty(FRESH_BYTES // 4)
        self._on_fresh = self._on_warm = math.inf

    def count(self) -> None:
        self._on_fresh = min(self._on_fresh, self._timed(_write_fresh))
        self._on_warm = min(self._on_warm, self._timed(lambda: self._warm.fill_(1.0)))

    def seconds_per_byte(self) -> float:
        return max(self._on_fresh - self._on_warm, 0.0) / FRESH_BYTES


def _write_fresh() -> None:
    with contextlib.closing(mmap.mmap(-1, FRESH_BYTES, **_PRIVATE)) as pages:
        torch.frombuffer(pages, dtype=torch.float32).fill_(1.0)
