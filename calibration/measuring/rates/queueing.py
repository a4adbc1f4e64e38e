"""How a device's queue behaves: what a launch costs the host, how late its kernel starts, what it takes at least.

All of it is measured from the host, with a clock and a way to wait for the device. So it works for every backend that
torch knows.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from placer.calibration.measuring.timing import Clock

#: Launches in a row: enough to tell a kernel from the jitter of a wait, far fewer than any queue holds.
BURST = 64
#: The products that keep the device busy while a burst is issued last this many times as long as issuing takes.
COVER = 4.0
#: Rows of their square matrices: the first size tried, and the largest.
_FIRST, _MOST = 256, 4096
#: Share of the cover that one product takes at the least, so that few launches make it.
_LEAST_PART = 1 / 8
_LEAST_ROUNDS, _MOST_ROUNDS = 7, 200
#: Seconds between the starts of two kernels that no device goes below. Less is a disturbed measurement.
_LEAST_KERNEL = 1e-7


def measure_queue(
    device: str, synchronize: Callable[[], None], *, seconds: float, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """The rates of a queue (seconds), measured within about ``seconds``.

    ``issue_seconds``: the host's time per launch. ``launch_seconds``: from there until a kernel starts on an idle
    device. ``dispatch_seconds``: the device's time for a kernel that does next to nothing, until the next one starts.
    ``sync_seconds``: waiting for a device that is idle.
    """
    share = seconds / 5
    (idle,) = _medians([lambda: None], synchronize, True, share, clock)
    tiny = torch.ones(8, device=device)
    issue, single, kernel = queued(tiny.neg_, device, synchronize, seconds=4 * share, clock=clock)
    return {
        "issue_seconds": issue,
        "launch_seconds": max(single - issue - kernel - idle, 0.0),
        "dispatch_seconds": kernel,
        "sync_seconds": idle,
    }


class Queued(NamedTuple):
    """Seconds of a kernel: its launch, until it is done on an idle device, and behind others in the queue."""

    issue: float
    single: float
    kernel: float


def queued(
    launch: Callable[[], object], device: str, synchronize: Callable[[], None], *, seconds: float,
    clock: Clock = time.perf_counter,
) -> Queued:  # fmt: skip
    """Time the kernel that ``launch`` launches, within about ``seconds``."""
    share = seconds / 4

    def burst() -> None:
        for _ in range(BURST):
            launch()

    def median(fn: Callable[[], object], wait: bool = True) -> float:
        return _medians([fn], synchronize, wait, share, clock)[0]

    issue = median(burst, wait=False) / BURST
    single = median(launch)
    cover = _cover(device, COVER * BURST * issue, single, median)

    def covered() -> None:
        cover()
        burst()

    # Behind long kernels they wait in the queue and run back to back, however slowly they are issued. Both are
    # timed in turns: the clock of a device rises while it works.
    with_burst, without = _medians([covered, cover], synchronize, True, 2.0 * share, clock)
    kernel = (with_burst - without) / BURST
    if kernel < _LEAST_KERNEL:  # disturbed: it is no longer than what the host was seen to issue one in
        kernel = max(issue, _LEAST_KERNEL)
    return Queued(issue, single, kernel)


def _medians(
    functions: Sequence[Callable[[], object]], synchronize: Callable[[], None], wait: bool, seconds: float, clock: Clock
) -> list[float]:
    """Median seconds of each function on an idle device, until it is issued or (``wait``) until it is done.

    They are run in turns for ``seconds`` in all.
    """
    times: list[list[float]] = [[] for _ in functions]
    for fn in functions:
        fn()
    deadline = clock() + seconds
    while len(times[0]) < _LEAST_ROUNDS or (len(times[0]) < _MOST_ROUNDS and clock() < deadline):
        for fn, own in zip(functions, times, strict=True):
            synchronize()
            start = clock()
            fn()
            if wait:
                synchronize()
            own.append(clock() - start)
    synchronize()
    return [statistics.median(own) for own in times]


def _cover(
    device: str, wanted: float, single: float, median: Callable[[Callable[[], object]], float]
) -> Callable[[], None]:
    """Issues a few matrix products that keep the device busy for ``wanted`` seconds."""
    rows = _FIRST
    while True:
        square = torch.ones(rows, rows, device=device)
        product = torch.empty_like(square)
        multiply = partial(torch.mm, square, square, out=product)
        took = max(median(multiply) - single, 0.0)
        if took >= _LEAST_PART * wanted or rows >= _MOST:
            break
        rows *= 2
    count = math.ceil(min(max(wanted / max(took, 1e-9), 1.0), 1.0 / _LEAST_PART))

    def cover() -> None:
        for _ in range(count):
            multiply()

    return cover
