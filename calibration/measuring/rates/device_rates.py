"""All rates of one device, measured in a given time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial

import torch

from placer.calibration.measuring.clocks import WARM, keep_busy
from placer.calibration.measuring.rates.copies import copy_rates
from placer.calibration.measuring.rates.first_use import first_use
from placer.calibration.measuring.rates.fresh_pages import FreshPages
from placer.calibration.measuring.rates.peaks import bytes_per_second, flops_per_second
from placer.calibration.measuring.rates.queueing import measure_queue
from placer.calibration.measuring.rates.timer import RateTimer
from placer.calibration.measuring.timing import Clock
from placer.calibration.measuring.waiting import synchronizer

#: Dtypes whose matrix-product rate is measured; a dtype the device refuses is left out and priced by the floor.
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
#: Rate that no sample corrects: calibration's own steps hardly touch a fresh page.
_FRESH = "fresh_seconds_per_byte"


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
        rates.update(copy_rates(device, timer))
    if pages is not None:
        tiny = torch.ones(8)
        out = torch.empty_like(tiny)
        rates["dispatch_seconds"] = timer(lambda: torch.neg(tiny, out=out), best=True)
        pages.count()
        rates[_FRESH] = pages.seconds_per_byte()
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
