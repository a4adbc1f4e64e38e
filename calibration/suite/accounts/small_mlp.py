"""Small multilayer perceptrons on data that is drawn or lies in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.steps import Stays
from placer.calibration.suite.mlp import mlp
from placer.calibration.suite.reference.supervised import Supervised, own_loss


class Blocks(nn.Module):
    """``depth`` times ``x + relu(linear(x))`` without a bias."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for linear in self.linears:
            x = x + F.relu(linear(x))
        return x


class Drawn(nn.Module):
    """Draws a batch like the one it is given on the host: inputs and labels."""

    def forward(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return torch.randn(inputs.shape), torch.randint(0, 10, labels.shape)


class TwoLayersByHand(nn.Module):
    """Forward, loss and gradients of two layers, written out, and the update of both weights."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.w1: Tensor
        self.w2: Tensor
        self.register_buffer("w1", torch.randn(inputs, hidden))
        self.register_buffer("w2", torch.randn(hidden, outputs))

    def forward(self, x: Tensor, y: Tensor) -> None:
        h = x.mm(self.w1)
        relu = h.clamp(min=0)
        error = relu.mm(self.w2) - y
        error.pow(2).sum()
        slope = 2.0 * error
        of_relu = slope.mm(self.w2.t())
        of_relu[h < 0] = 0
        self.w1 -= 1e-6 * x.t().mm(of_relu)
        self.w2 -= 1e-6 * relu.t().mm(slope)


class Heads(nn.Module):
    """MXNet's graph of 80 x 80 small layers, then as many fed by the sum of 80 of them beside the data."""

    def __init__(self, side: int, features: int, outputs: int) -> None:
        super().__init__()
        self.side = side
        self.first = nn.ModuleList(nn.Linear(features, outputs) for _ in range(side * side))
        self.second = nn.ModuleList(nn.Linear(features + outputs, outputs) for _ in range(side * side))

    def forward(self, data: Tensor) -> Tensor:
        first = [layer(data) for layer in self.first]
        second = []
        for i in range(self.side):
            column = first[i :: self.side]
            for j in range(self.side):
                summed = torch.stack(column).sum(0)
                second.append(self.second[i * self.side + j](torch.cat([summed, data], 1)))
        return torch.cat(second, 1)


def _labelled(rows: int, features: int, classes: int = 0) -> Callable[[], tuple[Tensor, ...]]:
    """Inputs (rows, features) with a label each, or with a float target where there are no classes."""
    return lambda: (
        torch.randn(rows, features), torch.zeros(rows, dtype=torch.int64) if classes else torch.zeros(rows, 1),
    )  # fmt: skip


def _blocks(batch: int) -> Point:
    part = Part(
        lambda: Stays(Blocks(128, 128)), lambda: (torch.randn(batch, 128),), "infer", data="device",
    )  # fmt: skip
    return Point(f"b{batch}", (part,))


def _drawn() -> Point:
    training = Part(
        lambda: Supervised(mlp((1000, 512, 10)), nn.CrossEntropyLoss()), _labelled(128, 1000, 10), "train",
        loss=own_loss, optimizer="sgd",
    )  # fmt: skip
    return Point("6400 steps", (training, Part(Drawn, _labelled(128, 1000, 10), "infer", on_host=True)))


def _deep(layers: int, epochs: int, batch: int) -> Point:
    """Width 10 throughout; a row has one input and one target."""
    part = Part(
        lambda: Supervised(mlp((1, *[10] * layers, 1)), nn.MSELoss()), _labelled(batch, 1), "train", loss=own_loss,
    )  # fmt: skip
    return Point(f"L{layers} ep{epochs} b{batch}", (part,))


_DEEP = ((1, 1, 1), (1, 1, 16), (1, 3, 1), (1, 3, 16), (10, 1, 1), (10, 1, 16), (10, 3, 1), (10, 3, 16), (50, 1, 1))

ACCOUNTS = (
    Account(
        "pchng-128xLinear128", "RTX 4090", hosts.RYZEN_7950X3D, "",
        "The forward pass alone; the input is on the device.",
        tuple(_blocks(2**i) for i in range(12)),
        why=(
            "placer prices the issue of a block's operators to the GPU at 24 us, and the account takes 16. It does "
            "not know what starting an operator on sixteen cores costs: it says 1.1 ms of one row, and the account "
            "takes 2.0."
        ),
    ),
    Account(
        "harmxn02-fnn-random", "RTX 3060 Laptop GPU", hosts.RYZEN_5600H, "",
        "Drawing the batch on the CPU.",
        (_drawn(),),
    ),
    Account(
        "nnodely-75", "T4", hosts.DESKTOP_2020, "both, width of the input, optimizer",
        "The loop around the steps, as far as it is told.",
        tuple(_deep(*case) for case in _DEEP),
    ),
    Account(
        "discuss-46733-manual2layer", "T4", hosts.COLAB, "which of Colab's GPUs",
        "The loop. The CPU side is NumPy; here both are PyTorch.",
        (Point("50000 it", (Part(
            lambda: TwoLayersByHand(32, 64, 5), lambda: (torch.randn(256, 32), torch.randn(256, 5)), "infer",
            data="device",
        ),)),),
        why=(
            "The account's CPU side is NumPy. Its step on the GPU takes 0.94 ms, twice what placer says of today's "
            "PyTorch."
        ),
    ),
    Account(
        "tch-rs-676", "Apple M1", hosts.APPLE_M1, "width of the layers (128)",
        "The forward pass from Rust. Whether the input is copied is not told; here it is not.",
        (Point("1000 it", (Part(
            lambda: Stays(mlp((12, 128, 128, 128, 1))), lambda: (torch.randn(1, 5, 10, 12),), "infer", data="device",
        ),)),),
    ),
    Account(
        "mxnet-2714-80fc", "GTX 980", hosts.DESKTOP_2017, "both",
        "The forward pass of MXNet's own engine, and the copy of the result to the host.",
        (Point("1 it", (Part(lambda: Heads(80, 512, 2), lambda: (torch.randn(1, 512),), "infer", data="device"),)),),
    ),
)  # fmt: skip
