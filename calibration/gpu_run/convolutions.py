"""Convolutions by layout and dtype, forward alone and with backward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from placer.calibration.gpu_run.bursts import Rates

#: Batch, channels in and out, size of the image, of the kernel, and groups: of ResNet-50, MobileNet and a U-Net.
SHAPES = (
    (8, 64, 64, 28, 3, 1), (32, 64, 64, 56, 3, 1), (32, 3, 64, 112, 7, 1), (32, 256, 64, 56, 1, 1),
    (32, 512, 512, 7, 3, 1), (32, 144, 144, 56, 3, 144), (8, 64, 64, 256, 3, 1),
)  # fmt: skip
#: Name of the dtype, torch's dtype, whether cuDNN may use TF32.
DTYPES = (("tf32", torch.float32, True), ("bfloat16", torch.bfloat16, True), ("float32", torch.float32, False))


def measure(rates: Rates) -> None:
    """Every shape in both layouts; TF32 is what torch uses unless told otherwise."""
    for n, ins, outs, size, kernel, groups in SHAPES:
        for name, dtype, tf32 in DTYPES:
            for layout in (torch.contiguous_format, torch.channels_last):
                for backward in (False, True):
                    question = {
                        "what": "conv2d", "batch": n, "in": ins, "out": outs, "size": size, "kernel": kernel,
                        "groups": groups, "dtype": name, "channels_last": layout is torch.channels_last,
                        "backward": backward,
                    }  # fmt: skip
                    make = _maker(rates.job.device, (n, ins, outs, size, kernel, groups), dtype, layout, backward)
                    needs = 3 * n * (ins + outs) * size * size * dtype.itemsize
                    with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
                        if not rates.ask(question, make, needs=needs):
                            break


def _maker(
    device: str, shape: tuple[int, ...], dtype: torch.dtype, layout: torch.memory_format, backward: bool
) -> Callable[[], Callable[[], object]]:
    n, ins, outs, size, kernel, groups = shape

    def make() -> Callable[[], object]:
        layer = nn.Conv2d(ins, outs, kernel, padding=kernel // 2, groups=groups, bias=False)
        layer = layer.to(device=device, dtype=dtype)
        layer.weight.data = layer.weight.data.to(memory_format=layout)
        x = torch.randn(n, ins, size, size, device=device).to(dtype=dtype, memory_format=layout)
        x.requires_grad_(backward)
        if not backward:
            weight = layer.weight.detach()
            return lambda: nn.functional.conv2d(x, weight, padding=kernel // 2, groups=groups)
        gradient = torch.ones_like(layer(x).detach())
        return lambda: torch.autograd.grad(layer(x), (x, layer.weight), gradient)

    return make
