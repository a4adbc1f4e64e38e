"""Single operators: matrix products, sums and additions of large and small matrices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.steps import Stays


class TwoDrawn(nn.Module):
    """Draws two matrices of the shape of the one that it is given."""

    def forward(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return torch.randn(like.shape), torch.randn(like.shape)


class AddedToItself(nn.Module):
    """``b += b``."""

    def forward(self, b: Tensor) -> None:
        b += b


def product() -> nn.Module:
    """a @ b, which stays where it is."""
    return Stays(torch.matmul)


def _square(n: int, count: int = 1) -> tuple[Tensor, ...]:
    """Matrices n x n; empty, as a trace reads no values."""
    return tuple(torch.empty(n, n) for _ in range(count))


def _copied(n: int) -> Point:
    drawn = Part(TwoDrawn, lambda: _square(n), "infer", on_host=True)
    return Point(f"n{n}", (drawn, Part(product, lambda: _square(n, 2), "infer", data="host")))


def _added(n: int) -> Point:
    return Point(str(n), (Part(AddedToItself, lambda: _square(n), "infer", data="device", count=1000),))


def _double(columns: int) -> tuple[Tensor, Tensor]:
    right = torch.empty(1000, columns, dtype=torch.float64) if columns > 1 else torch.empty(1000, dtype=torch.float64)
    return torch.empty(20_000, 1000, dtype=torch.float64), right


ACCOUNTS = (
    Account(
        "micslab-matmul-copies", "T4", hosts.COLAB, "both (a course's notebook on Colab)",
        "Drawing both matrices on the CPU, and their copies. The GPU is not waited for.",
        tuple(_copied(n) for n in (1, 1000, 10_000)),
    ),
    Account(
        "ogeek-add", "GTX 1080", hosts.DESKTOP_2017, "both",
        "The loop. The GPU is not waited for.",
        tuple(_added(n) for n in (4, 40, 400, 4000)),
    ),
    Account(
        "juejin-mm10000", "RTX 3060", hosts.DESKTOP_2020, "both",
        "One call each. The GPU is not waited for after the product, so the sum's time has most of it.",
        (
            Point("mm", (Part(product, lambda: _square(10_000, 2), "infer", data="device"),)),
            Point("sum", (Part(lambda: Stays(torch.sum), lambda: _square(10_000), "infer", data="device"),)),
        ),
        why="The account does not wait for the product before it times the sum: the sum's time is the product's.",
    ),
    Account(
        "denizyuret-matlab", "Tesla K40", hosts.I7_3820, "both",
        "MATLAB's loop; double precision.",
        (
            Point("vec x10000", (Part(product, lambda: _double(1), "infer", data="device", count=10_000),)),
            Point("100 cols x100", (Part(product, lambda: _double(100), "infer", data="device", count=100),)),
        ),
    ),
)  # fmt: skip
