"""A typical op of each kind of the table of ops: what records of single ops time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Shape = tuple[int, ...]
#: Smallest dimension that grows with the size of an op.
LEAST_SCALED = 16
#: A function for each kind, and the shapes of its operands, which are normal random numbers. Each takes a few
#: milliseconds at the most on one core.
PROBES: Mapping[str, tuple[Callable[..., Any], tuple[Shape, ...]]] = {
    "numbers": (torch.hypot, ((512, 512), (512, 512))),
    "functions": (torch.sinh, ((512, 512),)),
    "special": (torch.special.i1, ((128, 512),)),
    "copies": (lambda x: x.flip(-1), ((512, 512),)),
    "shuffles": (lambda x: F.pixel_shuffle(x, 2), ((4, 64, 32, 32),)),
    "pads": (lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), ((4, 32, 48, 48),)),
    "indexing": (lambda x: x.take(_places(x)), ((256, 512),)),
    "picking": (lambda x: x.nonzero(), ((128, 512),)),
    "sums": (lambda x: torch.var_mean(x, -1), ((256, 512),)),
    "losses": (lambda x: F.multi_margin_loss(x, _places(x[:, 0]) % x.shape[1]), ((256, 256),)),
    "rows": (lambda x: F.layer_norm(x, x.shape[1:]), ((512, 512),)),
    "windows": (lambda x: F.max_pool3d(x, 2), ((2, 8, 24, 24, 24),)),
    "interpolation": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), ((2, 8, 32, 32),)),
    "sampling": (lambda x, g: F.grid_sample(x, g, align_corners=False), ((2, 8, 64, 64), (2, 64, 64, 2))),
    "unfolding": (lambda x: F.unfold(x, 3), ((2, 16, 48, 48),)),
    "unpooling": (lambda x: F.max_unpool2d(x, _places(x) % 9216, [2, 2]), ((2, 16, 48, 48),)),
    "draws": (lambda x: torch.empty_like(x).geometric_(0.5), ((256, 256),)),
    "multinomial": (lambda x: x.abs().multinomial(16), ((64, 1024),)),
    "sorting": (torch.sort, ((64, 1024),)),
    "selection": (lambda x: x.kthvalue(100), ((64, 1024),)),
    "unique": (torch.unique, ((64, 512),)),
    "scans": (lambda x: x.logcumsumexp(-1), ((64, 1024),)),
    "histograms": (lambda x: x.histc(64), ((256, 512),)),
    "searches": (lambda table, x: torch.searchsorted(table, x), ((4096,), (64, 512))),
    "distances": (lambda x, y: torch.cdist(x, y, p=1.0), ((256, 64), (256, 64))),
    "factorisations": (lambda x: torch.linalg.lu_factor(x), ((192, 192),)),
    "solves": (lambda a, b: torch.linalg.solve_triangular(_unit(a), b, upper=True), ((192, 192), (192, 192))),
    "reflections": (torch.linalg.qr, ((128, 128),)),
    "eigenvalues": (torch.linalg.svd, ((64, 64),)),
    "transforms": (torch.fft.fft2, ((256, 256),)),
    "sparse": (lambda x: x.to_sparse(), ((128, 256),)),
    "sequences": (lambda x: torch.ctc_loss(x.log_softmax(-1), _targets(x), [64] * 8, [16] * 8), ((64, 8, 32),)),
}  # fmt: skip


def scaled(shapes: tuple[Shape, ...], times: int) -> tuple[Shape, ...]:
    """Larger shapes of the same op."""
    return tuple(tuple(n * times if n >= LEAST_SCALED else n for n in shape) for shape in shapes)


def _places(x: Tensor) -> Tensor:
    """As many places as ``x`` has elements, in disorder."""
    return (torch.arange(x.numel(), device=x.device) * 7919 % x.numel()).view(x.shape)


def _unit(x: Tensor) -> Tensor:
    return x.triu() + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)


def _targets(x: Tensor) -> Tensor:
    return torch.arange(16, device=x.device).expand(x.shape[1], 16) + 1

