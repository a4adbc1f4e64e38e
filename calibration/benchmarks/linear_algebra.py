"""Factorisations, solvers, determinants and distances; and, drawn among them, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from torch import Tensor

from placer.calibration.benchmarks import fourier
from placer.calibration.benchmarks.probe import Apply, Branch, Limit, Probe, block, log_int, tensor


def _definite(x: Tensor) -> Tensor:
    """Symmetric, positive definite, and far enough from singular for every factorisation."""
    return x @ x.mT + x.shape[-1] * torch.eye(x.shape[-1], device=x.device)


#: Functions of batches of square matrices, and about how many times n^3 FLOPs each takes.
SQUARE: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "solve": (lambda x: torch.linalg.solve(_definite(x), x), 4.0),
    "inv": (lambda x: torch.linalg.inv(_definite(x)), 4.0),
    "cholesky": (lambda x: torch.linalg.cholesky(_definite(x)), 3.0),
    "det": (lambda x: torch.linalg.det(x), 1.0),
    "slogdet": (lambda x: torch.linalg.slogdet(_definite(x)).logabsdet, 3.0),
    "triangular": (lambda x: torch.linalg.solve_triangular(_definite(x).tril(), x, upper=False), 3.0),
    "eigh": (lambda x: torch.linalg.eigvalsh(_definite(x)), 20.0),
    "qr": (lambda x: torch.linalg.qr(x).R, 8.0),
    "svd": (lambda x: torch.linalg.svdvals(x), 40.0),
    "matrix_exp": (lambda x: torch.linalg.matrix_exp(x / x.shape[-1]), 30.0),
}
#: Arithmetic of small factorisations is slow: FLOPs count this much more than those of a matrix product.
SLOW = 8.0


def propose(random: Random, limit: Limit) -> Probe:
    """A block of factorisations, distances and Fourier transforms of random sizes."""
    return block("linear_algebra", random, limit, _draw, most=8, halves=False)


def _draw(random: Random) -> Branch:
    kind = random.random()
    return _draw_square(random) if kind < 0.5 else _draw_distances(random) if kind < 0.65 else fourier.draw(random)


def _draw_square(random: Random) -> Branch:
    name = random.choice(list(SQUARE))
    function, cubes = SQUARE[name]
    batch, n = (1 if random.random() < 0.5 else log_int(random, 2, 256)), log_int(random, 2, 512)
    return Branch(
        f"{name} {batch}x{n}x{n}", lambda: Apply(function), lambda grad: tensor(batch, n, n, grad=grad),
        SLOW * cubes * batch * n**3, 24.0 * batch * n * n,
    )  # fmt: skip


def _draw_distances(random: Random) -> Branch:
    rows, width = log_int(random, 2, 2048), log_int(random, 2, 256)
    return Branch(
        f"cdist {rows}x{width}", lambda: Apply(lambda x: torch.cdist(x, x * 1.5)),
        lambda grad: tensor(rows, width, grad=grad), 3.0 * SLOW * rows * rows * width, 8.0 * rows * rows,
    )  # fmt: skip
