"""A hidden layer on large batches of a table, and layers whose weights fill a GPU's memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.mlp import mlp
from placer.calibration.suite.reference.supervised import Supervised, own_loss

#: Rows that brulee's times at its largest and smallest batch make likely, and features of a middling table.
_TABLE_ROWS, _TABLE_FEATURES = 25_000, 30


def wide() -> nn.Module:
    """120 layers 2000-2000, 1.8 GB of weights, on the meta device: nothing here computes with them."""
    with torch.device("meta"):
        layers = [layer for _ in range(120) for layer in (nn.Linear(2000, 2000), nn.LeakyReLU())]
        return nn.Sequential(*layers)


class OwnTarget(nn.Module):
    """Mean squared error of a network's output to its input."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.network(x), x)


def _table(batch: int) -> Point:
    part = Part(
        lambda: Supervised(mlp((_TABLE_FEATURES, 50, 1)), nn.MSELoss()),
        lambda: (torch.randn(batch, _TABLE_FEATURES), torch.randn(batch, 1)), "train", loss=own_loss,
        optimizer="adamw", data="device", count=200 * math.ceil(_TABLE_ROWS / batch),
    )  # fmt: skip
    return Point(f"b{batch}", (part,))


def _rows() -> tuple[Tensor]:
    return (torch.rand(30, 2000),)


ACCOUNTS = (
    Account(
        "brulee-mlp50", "T4", hosts.DESKTOP_2020, "both, number of features (30)",
        "R's own loop and its calls of libtorch, some milliseconds a step on either side.",
        tuple(_table(batch) for batch in (128, 512, 2048, 8192)),
        why=(
            "The account turns to the GPU between 512 and 2,048 rows, and so does placer, which calls the second of "
            "them level."
        ),
    ),
    Account(
        "buildz-linear", "RTX 4060 Laptop GPU", hosts.I7_13700H, "",
        "Clipping of the gradients' norm and reading of the loss, which are not rebuilt.",
        (
            Point("train", (Part(lambda: OwnTarget(wide()), _rows, "train", loss=own_loss, count=2.0),)),
            Point("eval", (Part(wide, _rows, "infer", count=2.0),)),
        ),
        why=(
            "A training step with Adam needs 10.3 GB and the card has 8, so placer says that it does not fit. The "
            "account's time on the GPU, twelve times what placer says of that card, suggests that weights were moved "
            "during the step."
        ),
    ),
)  # fmt: skip
