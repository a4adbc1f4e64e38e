"""Memory traffic by size, with operands that are in the cache and with operands that are not."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch

from placer.calibration.gpu_run.bursts import Rates

#: Elements of float32: 2^16 to 2^28.
SIZES = tuple(1 << power for power in range(16, 29, 2))
#: Bytes that evict any cache of a device, and operands that are taken in turns at most.
EVICTING, MOST_OPERANDS = 512 << 20, 64


def measure(rates: Rates) -> None:
    """A copy within the device, of one operand again and again, and of many in turns."""
    for cold in (False, True):
        for size in SIZES:
            operands = min(max(EVICTING // (8 * size), 1), MOST_OPERANDS) if cold else 1
            question = {"what": "device_copy", "elements": size, "cold": cold, "operands": operands}
            needs = 8.0 * size * operands
            if not rates.ask(question, _maker(rates.job.device, size, operands), needs=needs):
                break


def _maker(device: str, size: int, operands: int) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        pairs = [(torch.ones(size, device=device), torch.empty(size, device=device)) for _ in range(operands)]
        turns = itertools.cycle(pairs)

        def call() -> object:
            source, target = next(turns)
            return target.copy_(source)

        return call

    return make
