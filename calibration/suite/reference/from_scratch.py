"""Networks written from scratch, forward and backward, with two ways to send gradients back through max-pooling."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from placer.calibration.suite.reference import arithmetic
from placer.calibration.suite.reference.account import Case, Reference, batches_of
from placer.calibration.suite.reference.datasets import one_hot_digits
from placer.calibration.suite.reference.supervised import Supervised, own_loss

SYSTEM = "network from scratch"


class Layer(nn.Module):
    """A layer whose two passes are those of an ``arithmetic`` class, with what follows the input fixed."""

    def __init__(self, passes: type[torch.autograd.Function], *fixed: Any) -> None:
        super().__init__()
        self.passes = passes
        self.fixed = fixed

    def forward(self, x: Tensor) -> Tensor:
        return _apply(self.passes, x, *self.fixed)


class Weighted(nn.Module):
    """A layer with weights of ``shape`` and a bias; ``inputs`` values are summed up for each output."""

    def __init__(
        self, passes: type[torch.autograd.Function], shape: tuple[int, ...], inputs: int, outputs: int
    ) -> None:
        super().__init__()
        self.passes = passes
        self.weight = nn.Parameter(torch.randn(shape) * (2.0 / inputs) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return _apply(self.passes, x, self.weight, self.bias)


class Loss(nn.Module):
    """Softmax and cross entropy of logits (n, classes) against one-hot targets (n, classes)."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return _apply(arithmetic.SoftmaxCrossEntropy, logits, targets)


class Dropout(nn.Module):
    """Active in training only."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return _apply(arithmetic.Drop, x, self.share) if self.training else x


def _apply(passes: type[torch.autograd.Function], *arguments: Any) -> Tensor:
    result: Tensor = passes.apply(*arguments)
    return result


def convolution(channels: int, filters: int) -> Weighted:
    """3×3, no padding."""
    return Weighted(arithmetic.Convolution, (filters, channels, 3, 3), 9 * channels, filters)


def dense(inputs: int, outputs: int) -> Weighted:
    """A fully connected layer."""
    return Weighted(arithmetic.Affine, (inputs, outputs), inputs, outputs)


def small_cnn(pooling: type[torch.autograd.Function]) -> nn.Sequential:
    """Images (n, 1, 28, 28) to logits (n, 10): 10 filters, pooling, 100 units."""
    return nn.Sequential(
        OrderedDict(
            conv=convolution(1, 10), relu1=Layer(arithmetic.Rectifier), pool=Layer(pooling, 2), flatten=nn.Flatten(),
            dense1=dense(10 * 13 * 13, 100), relu2=Layer(arithmetic.Rectifier), dense2=dense(100, 10),
        )
    )  # fmt: skip


def large_cnn(pooling: type[torch.autograd.Function]) -> nn.Sequential:
    """The same made of more: 32 and 64 filters, pooling, dropout, 128 units, dropout."""
    return nn.Sequential(
        OrderedDict(
            conv1=convolution(1, 32), relu1=Layer(arithmetic.Rectifier), conv2=convolution(32, 64),
            relu2=Layer(arithmetic.Rectifier), pool=Layer(pooling, 2), dropout1=Dropout(0.25), flatten=nn.Flatten(),
            dense1=dense(64 * 12 * 12, 128), relu3=Layer(arithmetic.Rectifier), dropout2=Dropout(0.5),
            dense2=dense(128, 10),
        )
    )  # fmt: skip


def by_index() -> Supervised:
    """Images (n, 1, 28, 28) and one-hot labels (n, 10) to the small network's loss, pooling by index assignment."""
    return Supervised(small_cnn(arithmetic.MaxPoolByIndex), Loss())


def by_mask() -> Supervised:
    """The same, pooling by a 0/1 mask."""
    return Supervised(small_cnn(arithmetic.MaxPoolByMask), Loss())


def large_by_index() -> Supervised:
    """The large network, pooling by index assignment."""
    return Supervised(large_cnn(arithmetic.MaxPoolByIndex), Loss())


_BY_INDEX = (Case(8, 60_000, "pooling's index assignment takes 9.5 ms of a backward pass of 10.3 ms"),)
_BY_MASK = (Case(8, 60_000, "multiplying by the mask takes 16 µs"),)
_LARGE = (Case(128, 60_000, "forward, backward and update timed by hand, layer by layer"),)


def _variant(name: str, build: Callable[[], nn.Module], variant: str, cases: tuple[Case, ...]) -> Reference:
    return Reference(
        name, "cnn", build, one_hot_digits, batches_of(cases), ("train",), optimizer="sgd", loss=own_loss, data="host",
        system=SYSTEM, variant=variant, cases=cases, epochs=1,
    )  # fmt: skip


ENTRIES = (
    _variant("scratch_cnn_by_index", by_index, "conv 10, pooling by index assignment", _BY_INDEX),
    _variant("scratch_cnn_by_mask", by_mask, "conv 10, pooling by mask", _BY_MASK),
    _variant("scratch_cnn_large", large_by_index, "conv 32 and 64, pooling by index assignment", _LARGE),
)
