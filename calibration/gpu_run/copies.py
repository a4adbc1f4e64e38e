"""Copies between host and device, by size, direction and kind of host memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from placer.calibration.gpu_run.bursts import Rates

#: Bytes: 1 KB to 256 MB.
SIZES = tuple(1 << power for power in range(10, 29, 3))


def measure(rates: Rates) -> None:
    """As placer issues them: from pinned memory to the device without waiting, all others until they are done."""
    for memory in ("pageable", "pinned"):
        for direction in ("h2d", "d2h"):
            for size in SIZES:
                question = {"what": "copy", "direction": direction, "memory": memory, "bytes": size}
                if not rates.ask(question, _maker(rates.job.device, size, direction, memory), needs=size):
                    break


def _maker(device: str, size: int, direction: str, memory: str) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        host = torch.ones(size, dtype=torch.uint8)
        host = host.pin_memory() if memory == "pinned" else host
        card = torch.ones(size, dtype=torch.uint8, device=device)
        source, target = (host, card) if direction == "h2d" else (card, host)
        queued = memory == "pinned" and direction == "h2d"
        return lambda: target.copy_(source, non_blocking=queued)

    return make
