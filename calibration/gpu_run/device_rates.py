"""Rates that no profile has, in ``rates.jsonl``: products, convolutions, copies, updates, memory traffic, attention.

Each family asks in series of growing size. A series ends where the device refuses a question, has no room for it or
takes long: what is larger is not worth asking.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from placer.calibration.gpu_run.bursts import Call, Rates
from placer.calibration.gpu_run.job import Job
from placer.calibration.gpu_run.lines import Lines

PRODUCT_SIZES = (256, 512, 1024, 2048, 4096, 8192)
#: Name of the dtype, torch's dtype, and its precision of float32 products.
PRODUCT_DTYPES = (
    ("float32", torch.float32, "highest"), ("tf32", torch.float32, "high"), ("bfloat16", torch.bfloat16, "highest"),
    ("float16", torch.float16, "highest"),
)  # fmt: skip
#: Batch, channels in and out, size of the image, of the kernel, and groups: of ResNet-50, MobileNet and a U-Net.
CONVOLUTIONS = (
    (8, 64, 64, 28, 3, 1), (32, 64, 64, 56, 3, 1), (32, 3, 64, 112, 7, 1), (32, 256, 64, 56, 1, 1),
    (32, 512, 512, 7, 3, 1), (32, 144, 144, 56, 3, 144), (8, 64, 64, 256, 3, 1),
)  # fmt: skip
#: Name of the dtype, torch's dtype, whether cuDNN may use TF32, which it does unless told otherwise.
CONVOLUTION_DTYPES = (
    ("tf32", torch.float32, True), ("bfloat16", torch.bfloat16, True), ("float32", torch.float32, False),
)  # fmt: skip
#: Bytes: 1 KB to 256 MB.
COPY_SIZES = tuple(1 << power for power in range(10, 29, 3))
UPDATED_TENSORS = (1, 8, 64, 512)
#: Elements of each tensor: a bias, and a small layer.
UPDATED_ELEMENTS = (1 << 10, 1 << 16)
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD,
}  # fmt: skip
#: Elements of float32: 2^16 to 2^28.
TRAFFIC_SIZES = tuple(1 << power for power in range(16, 29, 2))
#: Bytes that evict any cache of a device, and operands that are taken in turns at most.
EVICTING, MOST_OPERANDS = 512 << 20, 64
#: Batch, heads, length and width of a head.
ATTENTIONS = ((1, 8, 128, 64), (8, 12, 128, 64), (8, 12, 512, 64), (4, 16, 1024, 64), (2, 16, 2048, 128))
BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH", "CUDNN_ATTENTION")


def run(job: Job) -> None:
    """Append a line for each rate. Raises BrokenDeviceError where the device runs nothing any more."""
    lines = Lines(job.folder / "rates.jsonl")
    for position, family in enumerate(FAMILIES):
        with job.piece(job.left / (len(FAMILIES) - position), lines, family.__name__) as piece:
            family(Rates(piece, lines))


def products(rates: Rates) -> None:
    """Square ones, and those of a layer whose batch is small: few rows by a wide square."""
    before = torch.get_float32_matmul_precision()
    for shape in ("square", "few_rows"):
        for name, dtype, precision in PRODUCT_DTYPES:
            torch.set_float32_matmul_precision(precision)
            try:
                for n in PRODUCT_SIZES:
                    rows = n if shape == "square" else 32
                    question = {"what": "mm", "m": rows, "k": n, "n": n, "dtype": name}
                    needs = (2 * rows * n + n * n) * dtype.itemsize
                    if not rates.ask(question, partial(_product, rates.job.device, rows, n, dtype), needs=needs):
                        break
            finally:
                torch.set_float32_matmul_precision(before)


def _product(device: str, rows: int, n: int, dtype: torch.dtype) -> Call:
    a = torch.randn(rows, n, device=device).to(dtype)
    b = torch.randn(n, n, device=device).to(dtype)
    return lambda: torch.mm(a, b)


def convolutions(rates: Rates) -> None:
    """Every shape in both layouts, forward alone and with backward."""
    variants = itertools.product(CONVOLUTIONS, CONVOLUTION_DTYPES, (torch.contiguous_format, torch.channels_last))
    for shape, (name, dtype, tf32), layout in variants:
        n, ins, outs, size, kernel, groups = shape
        for backward in (False, True):
            question = {
                "what": "conv2d", "batch": n, "in": ins, "out": outs, "size": size, "kernel": kernel, "groups": groups,
                "dtype": name, "channels_last": layout is torch.channels_last, "backward": backward,
            }  # fmt: skip
            make = partial(_convolution, rates.job.device, shape, dtype, layout, backward)
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
                if not rates.ask(question, make, needs=3 * n * (ins + outs) * size * size * dtype.itemsize):
                    break


def _convolution(
    device: str, shape: tuple[int, ...], dtype: torch.dtype, layout: torch.memory_format, backward: bool
) -> Call:
    n, ins, outs, size, kernel, groups = shape
    layer = nn.Conv2d(ins, outs, kernel, padding=kernel // 2, groups=groups, bias=False).to(device=device, dtype=dtype)
    layer.weight.data = layer.weight.data.to(memory_format=layout)
    x = torch.randn(n, ins, size, size, device=device).to(dtype=dtype, memory_format=layout)
    x.requires_grad_(backward)
    if not backward:
        weight = layer.weight.detach()
        return lambda: nn.functional.conv2d(x, weight, padding=kernel // 2, groups=groups)
    gradient = torch.ones_like(layer(x).detach())
    return lambda: torch.autograd.grad(layer(x), (x, layer.weight), gradient)


def copies(rates: Rates) -> None:
    """As placer issues them: from pinned memory to the device without waiting, all others until they are done."""
    for memory in ("pageable", "pinned"):
        for direction in ("h2d", "d2h"):
            for size in COPY_SIZES:
                question = {"what": "copy", "direction": direction, "memory": memory, "bytes": size}
                if not rates.ask(question, partial(_copy, rates.job.device, size, direction, memory), needs=size):
                    break


def _copy(device: str, size: int, direction: str, memory: str) -> Call:
    host = torch.ones(size, dtype=torch.uint8)
    host = host.pin_memory() if memory == "pinned" else host
    card = torch.ones(size, dtype=torch.uint8, device=device)
    source, target = (host, card) if direction == "h2d" else (card, host)
    queued = memory == "pinned" and direction == "h2d"
    return lambda: target.copy_(source, non_blocking=queued)


def updates(rates: Rates) -> None:
    """Optimizers' updates; what torch does unless told otherwise (foreach) first."""
    for elements, name, how in itertools.product(UPDATED_ELEMENTS, OPTIMIZERS, ("foreach", "fused", "for_loop")):
        for count in UPDATED_TENSORS:
            question = {"what": "update", "optimizer": name, "how": how, "count": count, "elements": elements}
            make = partial(_update, rates.job.device, name, how, count, elements)
            if not rates.ask(question, make, needs=16 * count * elements):
                break


def _update(device: str, name: str, how: str, count: int, elements: int) -> Call:
    weights = [torch.ones(elements, device=device).requires_grad_() for _ in range(count)]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    options = {"foreach": how == "foreach", "fused": how == "fused", "lr": 1e-7}
    return OPTIMIZERS[name](weights, **options).step  # type: ignore[arg-type]


def traffic(rates: Rates) -> None:
    """Copies within the device, of one operand again and again (cached), and of many in turns (not cached)."""
    for cold in (False, True):
        for size in TRAFFIC_SIZES:
            operands = min(max(EVICTING // (8 * size), 1), MOST_OPERANDS) if cold else 1
            question = {"what": "device_copy", "elements": size, "cold": cold, "operands": operands}
            make = partial(_traffic, rates.job.device, size, operands)
            if not rates.ask(question, make, needs=8.0 * size * operands):
                break


def _traffic(device: str, size: int, operands: int) -> Call:
    pairs = [(torch.ones(size, device=device), torch.empty(size, device=device)) for _ in range(operands)]
    turns = itertools.cycle(pairs)

    def call() -> object:
        source, target = next(turns)
        return target.copy_(source)

    return call


def attention(rates: Rates) -> None:
    """What a backend refuses is written down: flash attention has no float32."""
    backends = [(name, getattr(SDPBackend, name)) for name in BACKENDS if hasattr(SDPBackend, name)]
    variants = itertools.product((torch.bfloat16, torch.float32), backends, (False, True))
    for dtype, (name, backend), backward in variants:
        for shape in ATTENTIONS:
            batch, heads, length, width = shape
            question = {
                "what": "attention", "batch": batch, "heads": heads, "length": length, "width": width,
                "dtype": str(dtype).removeprefix("torch."), "backend": name, "backward": backward,
            }  # fmt: skip
            scores = batch * heads * length * (4 * width + (2 * length if name == "MATH" else 0))
            make = partial(_attention, rates.job.device, shape, dtype, backend, backward)
            if not rates.ask(question, make, needs=scores * dtype.itemsize):
                break


def _attention(device: str, shape: tuple[int, ...], dtype: torch.dtype, backend: SDPBackend, backward: bool) -> Call:
    q, k, v = (torch.randn(*shape, device=device).to(dtype).requires_grad_(backward) for _ in range(3))
    gradient = torch.ones(*shape, device=device, dtype=dtype)

    def call() -> object:
        with sdpa_kernel(backend):
            out = scaled_dot_product_attention(q, k, v)
        return torch.autograd.grad(out, (q, k, v), gradient) if backward else out

    return call


#: The most valuable first; each gets an equal share of the time that is left.
FAMILIES: tuple[Callable[[Rates], None], ...] = (products, convolutions, copies, updates, traffic, attention)
