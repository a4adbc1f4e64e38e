"""Keeps an accelerator's clock up, and notices where it was not.

A device that idles lowers its clock: an H200's falls from 1980 MHz to 345 MHz, and is back after some tens of
milliseconds of work. Real training keeps it up, so what is timed must run at that clock too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import torch

from placer import machine
from placer.calibration.measuring.faults import synchronizer
from placer.calibration.measuring.timing import Clock

#: Seconds of work that bring any clock back, and of idling that do no harm.
WARM, HARMLESS = 0.15, 2e-3
#: Rows of the matrices whose products are that work, and products between two looks at the clock: less than 10 ms of
#: work on the slowest device.
ROWS, PRODUCTS = 1024, 4
#: Share of the usual clock below which a measurement is slow, and readings before any is.
SLOW, LEAST_READINGS = 0.9, 5
#: NVML's bits for a clock that the power limit holds down, which large products run into in training too, and for a
#: device that idles, whose clock says nothing of the work before.
POWER_LIMIT, IDLE = 0x4, 0x1


def keep_busy(device: str, seconds: float, clock: Clock, *, rows: int = ROWS) -> None:
    """Let an accelerator multiply matrices for ``seconds``, and wait for it."""
    synchronize = synchronizer(device)
    assert synchronize is not None
    square = torch.ones(rows, rows, device=device)
    product = torch.empty_like(square)
    end = clock() + seconds
    while clock() < end:
        for _ in range(PRODUCTS):
            torch.mm(square, square, out=product)
        synchronize()


class ClockWatch:
    """Warms one accelerator up after it idled, and tells whether it ran at its usual clock.

    ``read`` replaces the question to NVML, which only NVIDIA's devices answer.
    """

    def __init__(self, device: str, clock: Clock, read: Callable[[], Mapping[str, float] | None] | None = None) -> None:
        self._device, self._clock = device, clock
        kind, index = machine.split_device(device)
        self._read = read or (lambda: machine.gpu_clocks(index) if kind == "cuda" else None)
        self._busy_until = clock()
        self._seen: list[float] = []
        self._noted: Mapping[str, float] | None = None

    def warm(self) -> None:
        """Work for as long as the device idled, at most ``WARM`` seconds: so warming takes half of the time at most."""
        idle = self._clock() - self._busy_until
        if idle > HARMLESS:
            keep_busy(self._device, min(idle, WARM), self._clock)
        self._busy_until = self._clock()

    def note(self) -> None:
        """Read the clock right after the last of what is timed, before the device idles; ``look`` tells it."""
        self._busy_until = self._clock()
        self._noted = self._read() or {}

    def look(self) -> tuple[dict[str, float], bool]:
        """(what is known of the clock and the power, whether the clock is far below the usual one).

        It is what was noted last, or else what is true now.
        """
        known, self._noted = dict((self._read() or {}) if self._noted is None else self._noted), None
        megahertz, reasons = known.get("sm_mhz", 0.0), int(known.get("throttle", 0.0))
        if not megahertz or reasons & IDLE:
            return known, False
        self._seen.append(megahertz)
        slow = len(self._seen) >= LEAST_READINGS and megahertz < SLOW * statistics.median(self._seen)
        return known, slow and not reasons & POWER_LIMIT
