"""Matrix products: square, thin, batched, matrix-vector; several dtypes."""

from __future__ import annotations

from functools import partial
from random import Random

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.probe import Branch, Limit, Probe, block, log_int, name_of, tensor, widths

#: float32 is what most steps run; the others only where their rate differs.
DTYPES = (torch.float32,) * 24 + (torch.bfloat16, torch.bfloat16, torch.float64, torch.float16)
KINDS = (
    "linear", "linear", "layer", "layer", "layer", "linear_3d", "bmm", "vector", "single", "square", "weights", "thin",
)  # fmt: skip
#: Widest layers.
WIDEST, WIDEST_ON_ACCELERATOR = 4096, 16384
#: How much slower a FLOP may be in a dtype that has no fast kernels everywhere, to keep a probe short.
SLOWER = {torch.float32: 1.0, torch.bfloat16: 4.0, torch.float64: 2.0, torch.float16: 60.0}


class Product(nn.Module):
    """Batched product with a second operand of its own, stored transposed or not, as attention's keys are."""

    def __init__(self, batch: int, k: int, n: int, transposed: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.transposed = transposed
        self.other = nn.Parameter(torch.randn((batch, n, k) if transposed else (batch, k, n)).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.other.transpose(1, 2) if self.transposed else self.other)


class MatrixVector(nn.Module):
    """A matrix times a vector without a batch dimension, as equations are written down."""

    def __init__(self, rows: int, columns: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(rows, columns).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix @ x


def propose(random: Random, limit: Limit) -> Probe:
    """A block of products of random shapes."""
    return block("matmul", random, limit, partial(_draw, limit=limit))


def _draw(random: Random, limit: Limit) -> Branch:
    dtype = random.choice(DTYPES)
    widest = WIDEST
    if limit.accelerator is not None:  # half precision is drawn for whole branches there
        dtype = torch.float64 if dtype == torch.float64 and limit.has_float64 else torch.float32
        widest = WIDEST_ON_ACCELERATOR
    slower = SLOWER[dtype] if limit.accelerator is None else limit.accelerator.slower.get(name_of(dtype), 1.0)
    kind = random.choice(KINDS)
    m, (k, n) = log_int(random, 1, 16384), widths(random, 1, widest, 2)
    batch = log_int(random, 1, 256) if kind == "bmm" else 1
    if kind in ("vector", "single"):
        m = 1
    elif kind == "layer":  # as wide as layers are: of shapes drawn evenly, half are too thin for a fast kernel
        m, (k, n) = log_int(random, 16, 16384), widths(random, 24, widest // 2, 2)
    elif kind == "weights":  # few rows through a large layer: its weights come from memory
        m, (k, n) = log_int(random, 1, 64), widths(random, 512, widest, 2)
    elif kind == "thin":  # many rows of few numbers, as patches of images are: no kernel's tile is ever full
        m, k, n = log_int(random, 64, 65536), log_int(random, 1, 48), log_int(random, 1, 48)
    elif kind == "square":
        m = k = n
    flops = 2.0 * batch * m * k * n * slower
    moved = 4.0 * batch * (m * k + k * n + m * n)
    bias, transposed = random.random() < 0.7, random.random() < 0.5
    if kind == "bmm":
        return Branch(f"bmm {batch}x{m}x{k}x{n} {dtype}", lambda: Product(batch, k, n, transposed, dtype),
                      lambda grad: tensor(batch, m, k, grad=grad, dtype=dtype), flops, moved,
                      slower=slower)  # fmt: skip
    if kind == "single":
        return Branch(f"mv {n}x{k} {dtype}", lambda: MatrixVector(n, k, dtype),
                      lambda grad: tensor(k, grad=grad, dtype=dtype), flops, moved, slower=slower)  # fmt: skip
    rows = (max(m // 8, 1), 8) if kind == "linear_3d" else (m,)
    return Branch(f"{kind} {m}x{k}x{n} {dtype}", lambda: nn.Linear(k, n, bias=bias, dtype=dtype),
                  lambda grad: tensor(*rows, k, grad=grad, dtype=dtype), flops, moved, slower=slower)  # fmt: skip
