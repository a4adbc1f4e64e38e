"""Attention by backend, dtype and length, forward alone and with backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from placer.calibration.gpu_run.bursts import Rates

#: Batch, heads, length and width of a head.
SHAPES = ((1, 8, 128, 64), (8, 12, 128, 64), (8, 12, 512, 64), (4, 16, 1024, 64), (2, 16, 2048, 128))
BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH", "CUDNN_ATTENTION")


def measure(rates: Rates) -> None:
    """What a backend refuses is written down: flash attention has no float32."""
    for dtype in (torch.bfloat16, torch.float32):
        for name in BACKENDS:
            backend = getattr(SDPBackend, name, None)
            if backend is None:
                continue
            for backward in (False, True):
                for shape in SHAPES:
                    batch, heads, length, width = shape
                    question = {
                        "what": "attention", "batch": batch, "heads": heads, "length": length, "width": width,
                        "dtype": str(dtype).removeprefix("torch."), "backend": name, "backward": backward,
                    }  # fmt: skip
                    scores = batch * heads * length * (4 * width + (2 * length if name == "MATH" else 0))
                    make = _maker(rates.job.device, shape, dtype, backend, backward)
                    if not rates.ask(question, make, needs=scores * dtype.itemsize):
                        break


def _maker(
    device: str, shape: tuple[int, ...], dtype: torch.dtype, backend: SDPBackend, backward: bool
) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        q, k, v = (torch.randn(*shape, device=device).to(dtype).requires_grad_(backward) for _ in range(3))
        gradient = torch.ones(*shape, device=device, dtype=dtype)

        def call() -> object:
            with sdpa_kernel(backend):
                out = scaled_dot_product_attention(q, k, v)
            return torch.autograd.grad(out, (q, k, v), gradient) if backward else out

        return call

    return make
