"""How a device's queue behaves: what a launch costs the host, how late its kernel starts, what it takes at least.

All of it is measured from the host, with a clock and a way to wait for the device. So it works for every backend that
torch knows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from placer.calibration.measuring.timing import Clock

#: Launches in a row: enough to tell a kernel from the jitter of a wait, far fewer than any queue holds.
BURST = 128
#: The kernel that keeps the device busy while a burst is issued lasts this many times as long as issuing takes.
COVER = 4.0
#: Elements of that kernel's operand: the first size tried, and the largest (a gigabyte of float32).
_FIRST, _MOST = 1 << 16, 1 << 28
_LEAST_ROUNDS, _MOST_ROUNDS = 7, 200


def measure_queue(
    device: str, synchronize: Callable[[], None], *, seconds: float, clock: Clock = time.perf_counter
) -> dict[str, float]:
    """The rates of a queue (seconds), measured within about ``seconds``.

    ``issue_seconds``: the host's time per launch. ``launch_seconds``: from there until a kernel starts on an idle
    device. ``dispatch_seconds``: the device's time for a kernel that does next to nothing. ``sync_seconds``: waiting
    for a device that is idle.
    """
    tiny = torch.ones(8, device=device)
    share = seconds / 5

    def burst() -> None:
        for _ in range(BURST):
            tiny.neg_()

    def median(fn: Callable[[], object], wait: bool = True) -> float:
        return _median(fn, synchronize, wait, share, clock)

    idle = median(lambda: None)
    issue = median(burst, wait=False) / BURST
    single = median(tiny.neg_)
    large = _cover(device, COVER * BURST * issue, single, median)

    def covered() -> None:
        large.neg_()
        burst()

    # Behind a long kernel the tiny ones wait in the queue and run back to back, however slowly they are issued.
    kernel = max(median(covered) - median(large.neg_), 0.0) / BURST
    return {
        "issue_seconds": issue,
        "launch_seconds": max(single - issue - kernel - idle, 0.0),
        "dispatch_seconds": max(kernel, 1e-8),
        "sync_seconds": idle,
    }


def _median(
    fn: Callable[[], object], synchronize: Callable[[], None], wait: bool, seconds: float, clock: Clock
) -> float:
    """Median seconds of ``fn`` on an idle device, until it is issued or (``wait``) until it is done."""
    fn()
    times: list[float] = []
    deadline = clock() + seconds
    while len(times) < _LEAST_ROUNDS or (len(times) < _MOST_ROUNDS and clock() < deadline):
        synchronize()
        start = clock()
        fn()
        if wait:
            synchronize()
        times.append(clock() - start)
    synchronize()
    return statistics.median(times)


def _cover(device: str, wanted: float, single: float, median: Callable[[Callable[[], object]], float]) -> torch.Tensor:
    """A tensor whose negation in place keeps the device busy for ``wanted`` seconds, or the largest with room."""
    elements = _FIRST
    tensor = torch.ones(elements, device=device)
    while elements < _MOST:
        took = median(tensor.neg_) - single
        if took >= wanted:
            break
        # Twice what the last size suggests to be enough, because small sizes hide in the launch.
        factor = 2.0 * wanted / took if took > 0.1 * wanted else 16.0
        elements = min(int(elements * min(max(factor, 2.0), 16.0)), _MOST)
        try:
            tensor = torch.ones(elements, device=device)
        except RuntimeError:  # no room: a shorter cover makes the answer coarser, not wrong
            break
    return tensor
