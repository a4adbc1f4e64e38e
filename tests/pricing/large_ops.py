"""Large single ops, each with what it takes at the least: arithmetic, memory traffic, kernels that follow each other.

Bounds are written by hand from what an op computes, and know nothing of the table of ops. An op reads its operands and
writes its results once at the least; ``moved`` says so where it need not read all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import log2
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.tracing import Trace, trace_here
from placer.workload import make_workload


class LargeOp(NamedTuple):
    """``call`` on tensors of ``shapes`` (float32, or pairs of a shape and a dtype). ``flops``: a multiply-add is two.

    ``sequence``: kernels of which each needs the one before. ``moved``: bytes, or None for operands and results.
    """

    call: Callable[..., Any]
    shapes: tuple[Any, ...]
    flops: float = 0.0
    sequence: int = 1
    moved: float | None = None

    def example(self) -> tuple[Tensor, ...]:
        """Operands of zeros, which take no memory until they are touched; floating-point matrices are unit ones."""
        pairs = [s if isinstance(s[-1], torch.dtype) else (s, torch.float32) for s in self.shapes]
        operands = tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in pairs)
        for operand in operands:
            if operand.is_floating_point() and operand.dim() > 1:
                operand.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return operands


SQUARE, WHOLE, DOUBLE, COMPLEX = (4096, 4096), torch.int64, torch.float64, torch.complex64
N = 4096 * 4096
#: Columns of a panel of blocked factorisations, at the most.
PANEL = 128
#: Time steps inside one kernel, each of which waits for the one before, that take as long as a kernel at the least.
STEPS = 4


def bound_to(call: Callable[..., Any], **given: Any) -> Callable[..., Any]:
    """``call`` with keyword arguments."""
    return lambda *tensors: call(*tensors, **given)


LARGE: dict[str, LargeOp] = {
    # Distances: 3 operations for each element of each pair, 2 in a product.
    "cdist": LargeOp(torch.cdist, ((4096, 512), (4096, 512)), 2.0 * 4096**2 * 512),
    "pdist": LargeOp(F.pdist, ((4096, 128),), 3.0 * 4096 * 4095 / 2 * 128),
    # Sorting and selection: every element is read, and compared at least once.
    "sort": LargeOp(torch.sort, (SQUARE,), N * log2(4096.0), 2),
    "topk": LargeOp(bound_to(torch.topk, k=10), (SQUARE,), N),
    "unique": LargeOp(bound_to(torch.unique), (SQUARE,), N, 2, 4.0 * N),
    "nonzero": LargeOp(torch.nonzero, (SQUARE,), N, 2, 4.0 * N),
    # Linear algebra. Panels of a factorisation follow each other; the library has no batched kernel for QRs.
    "qr": LargeOp(torch.linalg.qr, ((512, 512),), 4 / 3 * 512**3, 512 // PANEL),
    "eigh": LargeOp(torch.linalg.eigh, ((512, 512),), 4 / 3 * 512**3, 512 // PANEL),
    "solve": LargeOp(torch.linalg.solve, ((1024, 1024), (1024, 16)), 2 / 3 * 1024**3, 1024 // PANEL),
    "matrix_exp": LargeOp(torch.matrix_exp, ((1024, 1024),), 10.0 * 1024**3, 5),
    # Products in other numbers than float32, and of small matrices.
    "mm of complex": LargeOp(torch.mm, (((1024, 1024), COMPLEX), ((1024, 1024), COMPLEX)), 8.0 * 1024**3),
    "bmm of small matrices": LargeOp(torch.bmm, ((8192, 16, 16), (8192, 16, 16)), 2.0 * 8192 * 16**3),
    # Random draws, histograms and searches.
    "bernoulli": LargeOp(torch.bernoulli, (SQUARE,), 10.0 * N),
    "searchsorted": LargeOp(torch.searchsorted, ((65536,), (N,)), 16.0 * N),
    # Interpolation and sampling: 4 taps of a bilinear, 16 of a bicubic, 8 of a trilinear result.
    "bilinear upsampling": LargeOp(
        bound_to(F.interpolate, scale_factor=2, mode="bilinear"), ((8, 64, 64, 64),), 8.0 * 8 * 64 * 128**2
    ),
    "grid_sample": LargeOp(
        bound_to(F.grid_sample, align_corners=False), ((32, 3, 224, 224), (32, 224, 224, 2)), 8.0 * 32 * 3 * 224**2
    ),
    # Sequences and transforms.
    "ctc_loss": LargeOp(
        lambda p, t: F.ctc_loss(p.log_softmax(-1), t, (512,) * 32, (60,) * 32),
        ((512, 32, 64), ((32, 60), WHOLE)),
        3.0 * 512 * 32 * 121,
        512 // STEPS,
    ),
    "lstm": LargeOp(nn.LSTM(256, 256, 2), ((512, 32, 256),), 2.0 * 512 * 32 * 2 * 8 * 256**2, 512),
    "fft": LargeOp(torch.fft.fft, (((1024, 8192), COMPLEX),), 2.5 * 1024 * 8192 * log2(8192.0)),
    "cumsum": LargeOp(bound_to(torch.cumsum, dim=-1), (SQUARE,), N),
    # Convolutions.
    "conv3d": LargeOp(nn.Conv3d(32, 64, 3, padding=1), ((4, 32, 16, 56, 56),), 2.0 * 4 * 32 * 64 * 27 * 16 * 56**2),
    # Functions of great cost, and others that move every element.
    "lgamma": LargeOp(torch.lgamma, (SQUARE,), 20.0 * N),
    "cross_entropy": LargeOp(F.cross_entropy, ((8192, 50_257), ((8192,), WHOLE)), 3.0 * 8192 * 50_257),
}


class One(nn.Module):
    """One op as a layer."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *operands: Tensor) -> Any:
        return self.call(*operands)


@cache
def step_of(name: str) -> Trace:
    """A step of a large op."""
    op = LARGE[name]
    return trace_here(make_workload(One(op.call), batch=op.example(), mode="infer"))


def compulsory_bytes(name: str) -> float:
    """Bytes that an op reads and writes at the least."""
    op = LARGE[name]
    if op.moved is not None:
        return op.moved
    written = step_of(name).calls[-1].outputs
    return float(sum(t.nbytes for t in op.example()) + sum(t.stored_bytes for t in written))
