"""Multilayer perceptrons on MNIST."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.steps import Stays
from placer.calibration.suite.mlp import mlp
from placer.calibration.suite.reference.supervised import Supervised, own_loss

_ROWS, _TEST_ROWS, _PIXELS, _DIGITS = 60_000, 10_000, 784, 10


def _digits(batch: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randn(batch, _PIXELS), torch.zeros(batch, dtype=torch.int64))


def _one_hot(batch: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (torch.randn(batch, _PIXELS), torch.zeros(batch, _DIGITS))


def _classifier(*hidden: int, dropout: float = 0.0) -> nn.Module:
    return Supervised(mlp((_PIXELS, *hidden, _DIGITS), dropout=dropout), nn.CrossEntropyLoss())


def sigmoid_network(hidden: int) -> nn.Sequential:
    """784-hidden-10 with a sigmoid after each layer, as the book "Make Your Own Neural Network" has it."""
    return nn.Sequential(*mlp((_PIXELS, hidden, _DIGITS), nn.Sigmoid), nn.Sigmoid())


def _keras(hidden: int, at: str) -> Point:
    """Ten epochs of a fit in batches of 128."""
    part = Part(
        lambda: _classifier(hidden, dropout=0.2), _digits(128), "train", loss=own_loss, optimizer="nadam",
        count=10 * math.ceil(_ROWS / 128),
    )  # fmt: skip
    return Point(at, (part,))


ACCOUNTS = (
    Account(
        "so-42097115-keras-mlp", "GTX 1080", hosts.I7_6700K, "the GPU; one hidden layer of the width that is told",
        "Keras's fit.",
        (_keras(1000, "1000 hidden"), _keras(100, "100 hidden (approx. in source)")),
        why=(
            "The account's figures of this variant are approximate. Keras takes 2 s an epoch on the GPU, of which the "
            "steps are 0.4."
        ),
    ),
    Account(
        "indepth-2006-mnist", "Quadro RTX 5000", hosts.I9_10885H, "",
        "Keras's fit.",
        (Point("default b32", (Part(lambda: _classifier(128), _digits(32), "train", loss=own_loss),)),),
        why="Keras takes 2.3 ms a step on the CPU and 3.5 on the GPU; the steps themselves are 0.8 ms on both.",
    ),
    Account(
        "sbataille-mnist-b1", "T4", hosts.DESKTOP_2020, "both, hidden width (200)",
        "The copy of every single row.",
        (
            Point("train", (Part(
                lambda: Supervised(sigmoid_network(200), nn.MSELoss()), _one_hot(1), "train", loss=own_loss,
                optimizer="sgd", count=_ROWS,
            ),)),
            Point("test", (Part(
                lambda: sigmoid_network(200), lambda: (torch.randn(1, _PIXELS),), "infer", count=_TEST_ROWS,
            ),)),
        ),
    ),
    Account(
        "justin8-mlp-infer", "T4", hosts.COLAB, "",
        "The forward pass alone; the images are on the device.",
        (Point("10k images", (Part(
            lambda: Stays(mlp((_PIXELS, 512, 256, _DIGITS))), lambda: (torch.randn(1000, _PIXELS),), "infer",
            data="device", count=10,
        ),)),),
    ),
)  # fmt: skip
