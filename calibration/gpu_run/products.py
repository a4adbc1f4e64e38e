"""Matrix products by size and dtype."""

from __future__ import annotations

from collections.abc import Callable

import torch

from placer.calibration.gpu_run.bursts import Rates

SIZES = (256, 512, 1024, 2048, 4096, 8192)
#: Name of the dtype, torch's dtype, and its precision of float32 products.
DTYPES = (
    ("float32", torch.float32, "highest"), ("tf32", torch.float32, "high"), ("bfloat16", torch.bfloat16, "highest"),
    ("float16", torch.float16, "highest"),
)  # fmt: skip


def measure(rates: Rates) -> None:
    """Square ones, and those of a layer whose batch is small: few rows by a wide square."""
    before = torch.get_float32_matmul_precision()
    for shape in ("square", "few_rows"):
        for name, dtype, precision in DTYPES:
            torch.set_float32_matmul_precision(precision)
            try:
                for n in SIZES:
                    rows = n if shape == "square" else 32
                    question = {"what": "mm", "m": rows, "k": n, "n": n, "dtype": name}
                    needs = (2 * rows * n + n * n) * dtype.itemsize
                    if not rates.ask(question, _maker(rates.job.device, rows, n, dtype), needs=needs):
                        break
            finally:
                torch.set_float32_matmul_precision(before)


def _maker(device: str, rows: int, n: int, dtype: torch.dtype) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        a = torch.randn(rows, n, device=device).to(dtype)
        b = torch.randn(n, n, device=device).to(dtype)
        return lambda: torch.mm(a, b)

    return make
