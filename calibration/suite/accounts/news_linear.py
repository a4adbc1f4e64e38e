"""Three accounts of one exercise: a single layer on 300-dimensional averages of word vectors of news headlines.

The training split has 10,684 rows, the validation split 1,336.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.steps import read_loss, row_loader
from placer.calibration.suite.reference.supervised import Supervised, own_loss
from placer.workload import Data

_FEATURES, _CLASSES, _ROWS, _VALIDATION = 300, 4, 10_684, 1_336


def linear() -> nn.Module:
    """Headlines (batch, 300) and categories (batch,) to the cross entropy."""
    return Supervised(nn.Linear(_FEATURES, _CLASSES, bias=False), nn.CrossEntropyLoss())


def linear_and_softmax() -> nn.Module:
    """The same with a softmax before the cross entropy, as one account has it."""
    layers = nn.Sequential(nn.Linear(_FEATURES, _CLASSES, bias=False), nn.Softmax(dim=1))
    return Supervised(layers, nn.CrossEntropyLoss())


def headlines(batch: int) -> tuple[Tensor, Tensor]:
    """Averaged word vectors (batch, 300) and their classes (batch,)."""
    return torch.randn(batch, _FEATURES), torch.zeros(batch, dtype=torch.int64)


def _training(batch: int, *, softmax: bool = False, reads: bool = False, data: Data = "host") -> Part:
    """An epoch of steps."""
    return Part(
        linear_and_softmax if softmax else linear, lambda: headlines(batch), "train",
        loss=read_loss if reads else own_loss, optimizer="sgd", data=data, count=math.ceil(_ROWS / batch),
    )  # fmt: skip


def _sweep(batch: int) -> Point:
    loader = row_loader(_ROWS, batch, (_FEATURES, 0), counted=("cpu",))
    return Point(f"b{batch}", (_training(batch, softmax=True, data="device"), loader))


def _kiyuna(batch: int) -> Point:
    validation = Part(linear, lambda: headlines(_VALIDATION), "infer")
    return Point(f"b{batch}", (_training(batch, reads=True), row_loader(_ROWS, batch, (_FEATURES, 0)), validation))


def _colab(batch: int) -> Point:
    return Point(
        f"b{batch}", (_training(batch), row_loader(_ROWS, batch, (_FEATURES, 0))), gpu_host=hosts.COLAB,
    )  # fmt: skip


ACCOUNTS = (
    Account(
        "nlp100-linear300x4-sweep", "T4", hosts.DESKTOP_2020, "both",
        "CPU: the loader. GPU: neither the loader nor copies.",
        tuple(_sweep(2**i) for i in range(11)),
        why=(
            "The loader counts on the CPU's side alone, which flatters the GPU; and its step on the GPU takes a "
            "quarter longer (490 us at batch 2) than placer says of the stand-ins."
        ),
    ),
    Account(
        "kiyuna-100knock-linear300x4", "T4", hosts.SERVER_2020, "both (a server with several GPUs)",
        "The loader, and one pass over the validation split.",
        tuple(_kiyuna(batch) for batch in (1, 2, 4, 8, 16, 32, _ROWS)),
    ),
    Account(
        "colab-author-linear300x4", "T4", hosts.DESKTOP_2020, "the CPU, and which of Colab's GPUs",
        "The loader. CPU and GPU are in different machines. The GPU is not waited for at the end.",
        tuple(_colab(2**i) for i in range(12)),
    ),
)  # fmt: skip
