"""What copying costs: one 200×200 product with and without copies, and the small ConvNet of the MNIST example."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from placer.calibration.suite.cnn import MnistNet
from placer.calibration.suite.reference.account import Case, Reference, batches_of
from placer.calibration.suite.reference.datasets import digits
from placer.calibration.suite.reference.products import product_on_device, product_with_copies
from placer.calibration.suite.reference.supervised import Supervised, own_loss

SYSTEM = "moving data"
MNIST_ROWS = 60_000


def convnet_training() -> Supervised:
    """Images (batch, 1, 28, 28) and labels (batch,) to the loss of the network of PyTorch's MNIST example."""
    return Supervised(MnistNet(), nn.NLLLoss())


def square_matrices(side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two factors (side, side)."""
    return torch.randn(side, side), torch.randn(side, side)


_STAYING = (Case(200, None, "GPU 6 times faster than the CPU", ("GPU",)),)
_COPIED = (Case(200, None, "GPU and CPU about equal", ("tie",)),)
_CONVNET = (Case(64, MNIST_ROWS, "153 s against 83 s on a Tesla K80, 10 epochs", ("GPU",)),)


def _square(
    name: str, build: Callable[[], nn.Module], variant: str, cases: tuple[Case, ...], *, copied: bool
) -> Reference:
    return Reference(
        name, "matmul", build, square_matrices, batches_of(cases), ("infer",), data="host" if copied else "device",
        system=SYSTEM, variant=variant, cases=cases,
    )  # fmt: skip


ENTRIES = (
    _square("square_product_staying", product_on_device, "n×n product, operands stay", _STAYING, copied=False),
    _square("square_product_copied", product_with_copies, "n×n product, all copied", _COPIED, copied=True),
    Reference(
        "mnist_example_training", "cnn", convnet_training, digits, batches_of(_CONVNET), ("train",),
        optimizer="adadelta", loss=own_loss, data="host", system=SYSTEM, variant="MNIST ConvNet", cases=_CONVNET,
        epochs=10, gpu="Tesla K80", names_gpu=True,
    ),
)  # fmt: skip
