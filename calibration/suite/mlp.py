"""Multilayer perceptrons, from a 2-20-5-1 surface regression to 4096-wide layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import binary, cross_entropy, mean_squared


def mlp(
    sizes: Sequence[int],
    activation: Callable[[], nn.Module] = nn.ReLU,
    *,
    norm: Callable[[int], nn.Module] | None = None,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Linear layers of these sizes with an optional norm, the activation and dropout between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes[:-1]):
        layers.append(nn.Linear(inputs, outputs))
        if norm is not None:
            layers.append(norm(outputs))
        layers.append(activation())
        if dropout:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def rows(features: int) -> Callable[[int], Tensor]:
    """Examples of shape (batch, features)."""
    return lambda n: torch.randn(n, features)


class Residual(nn.Module):
    """x + f(norm(x)), the block of tabular residual networks."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.inner(self.norm(x))
        return out


ENTRIES = (
    Entry(
        "mlp_surface", "mlp", lambda: mlp((2, 20, 5, 1), nn.Tanh), rows(2), (32, 1000, 40_000), loss=mean_squared,
    ),
    Entry("mlp_tiny_sgd", "mlp", lambda: mlp((4, 8, 1)), rows(4), (1, 128, 8192), optimizer="sgd", loss=mean_squared),
    Entry("mlp_tabular", "mlp", lambda: mlp((84, 128, 64, 10)), rows(84), (32, 512, 4096), loss=cross_entropy),
    Entry(
        "mlp_batchnorm", "mlp", lambda: mlp((64, 256, 256, 128, 2), norm=nn.BatchNorm1d), rows(64), (64, 1024),
        optimizer="adamw", loss=cross_entropy,
    ),
    Entry(
        "mlp_dropout", "mlp", lambda: mlp((200, 400, 400, 400, 1), nn.SiLU, dropout=0.3), rows(200), (32, 512, 2048),
        optimizer="rmsprop", loss=binary,
    ),
    Entry(
        "mlp_deep_narrow", "mlp", lambda: mlp((16, *[32] * 20, 1), nn.ELU), rows(16), (16, 1024), loss=mean_squared,
    ),
    Entry(
        "mlp_residual", "mlp",
        lambda: nn.Sequential(nn.Linear(100, 192), *[Residual(192, 384) for _ in range(4)], nn.Linear(192, 1)),
        rows(100), (32, 256, 1024), optimizer="adamw", loss=mean_squared,
    ),
    Entry("mlp_wide", "mlp", lambda: mlp((512, 2048, 2048, 10)), rows(512), (16, 256), loss=cross_entropy),
    Entry(
        "mlp_huge_sgd", "mlp", lambda: mlp((1024, 4096, 4096, 1024), nn.GELU), rows(1024), (8, 128), optimizer="sgd",
    ),
)  # fmt: skip
