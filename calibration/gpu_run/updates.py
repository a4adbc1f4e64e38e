"""Optimizers' updates by implementation and number of tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from placer.calibration.gpu_run.bursts import Rates

COUNTS = (1, 8, 64, 512)
#: Elements of each tensor: a bias, and a small layer.
ELEMENTS = (1 << 10, 1 << 16)
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD,
}  # fmt: skip
IMPLEMENTATIONS = ("foreach", "fused", "for_loop")


def measure(rates: Rates) -> None:
    """What torch does unless told otherwise (foreach) first."""
    for elements in ELEMENTS:
        for name in OPTIMIZERS:
            for how in IMPLEMENTATIONS:
                for count in COUNTS:
                    question = {"what": "update", "optimizer": name, "how": how, "count": count, "elements": elements}
                    make = _maker(rates.job.device, name, how, count, elements)
                    if not rates.ask(question, make, needs=16 * count * elements):
                        break


def _maker(device: str, name: str, how: str, count: int, elements: int) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        weights = [torch.ones(elements, device=device).requires_grad_() for _ in range(count)]
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        options = {"foreach": how == "foreach", "fused": how == "fused", "lr": 1e-7}
        return OPTIMIZERS[name](weights, **options).step  # type: ignore[arg-type]

    return make
