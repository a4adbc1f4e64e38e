"""What a copy costs per tensor and per byte, in both directions, from pageable and from pinned memory."""

from __future__ import annotations

import torch

from placer.calibration.measuring.rates.peaks import most_elements
from placer.calibration.measuring.rates.timer import RateTimer


def copy_rates(device: str, timer: RateTimer) -> dict[str, float]:
    """``copy/{h2d,d2h}/{pageable,pinned}/`` seconds_per_tensor and bytes_per_second of an accelerator.

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
