"""Networks written from scratch, forward and backward, with two ways to send gradients back through max-pooling.

Each ``Function`` holds the two passes of one layer; autograd only calls them in order. So a step splits into forward,
backward and update, layer by layer, as it does where all is written by hand.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from placer.calibration.suite.entry import Supervised


def im2col(images: Tensor, size: int) -> Tensor:
    """Every ``size`` × ``size`` patch of (n, channels, h, w) as one row of a matrix."""
    patches = images.unfold(2, size, 1).unfold(3, size, 1)  # (n, channels, rows, columns, size, size)
    channels = images.shape[1]
    return patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, channels * size * size)


def col2im(matrix: Tensor, shape: torch.Size, size: int) -> Tensor:
    """The sum of all patches, each back in its place: the transpose of ``im2col`` for images of ``shape``."""
    n, channels, height, width = shape
    rows, columns = height - size + 1, width - size + 1
    patches = matrix.view(n, rows, columns, channels, size, size).permute(0, 3, 4, 5, 1, 2)
    images = matrix.new_zeros(shape)
    for y in range(size):
        for x in range(size):
            images[:, :, y : y + rows, x : x + columns] += patches[:, :, y, x]
    return images


def windows(images: Tensor, size: int) -> Tensor:
    """Every pooling window of (n, channels, h, w) as one row of ``size`` × ``size`` values."""
    return images.unfold(2, size, size).unfold(3, size, size).reshape(-1, size * size)


def from_windows(matrix: Tensor, shape: torch.Size, size: int) -> Tensor:
    """The inverse of ``windows`` for images of ``shape``."""
    n, channels, height, width = shape
    parts = matrix.view(n, channels, height // size, width // size, size, size)
    return parts.permute(0, 1, 2, 4, 3, 5).reshape(shape)


class Convolution(Function):
    """Images (n, channels, h, w) by weights (filters, channels, size, size), as one matrix product."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        filters, _, size, _ = weight.shape
        columns = im2col(images, size)
        ctx.save_for_backward(columns, weight)
        ctx.images = images.shape
        result = columns @ weight.view(filters, -1).T + bias
        height, width = images.shape[2] - size + 1, images.shape[3] - size + 1
        return result.view(images.shape[0], height, width, filters).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        columns, weight = ctx.saved_tensors
        filters, _, size, _ = weight.shape
        rows = grad.permute(0, 2, 3, 1).reshape(-1, filters)
        to_weight = (columns.T @ rows).T.reshape(weight.shape)
        to_bias = rows.sum(dim=0)
        if not ctx.needs_input_grad[0]:  # the first layer of a network
            return None, to_weight, to_bias
        return col2im(rows @ weight.view(filters, -1), ctx.images, size), to_weight, to_bias


class MaxPoolByIndex(Function):
    """The largest of each window; backward assigns the gradients to their indices in a matrix of zeros."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, size: int) -> Tensor:
        largest, where = windows(images, size).max(dim=1)
        ctx.save_for_backward(where)
        ctx.images, ctx.size = images.shape, size
        return _pooled(largest, images.shape, size)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (where,) = ctx.saved_tensors
        spread = grad.new_zeros(where.shape[0], ctx.size**2)
        spread[torch.arange(where.shape[0], device=where.device), where] = grad.reshape(-1)
        return from_windows(spread, ctx.images, ctx.size), None


class MaxPoolByMask(Function):
    """The same; backward multiplies by a mask that is 1 at the largest of each window and 0 elsewhere."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, size: int) -> Tensor:
        largest, where = windows(images, size).max(dim=1)
        mask = torch.arange(size**2, device=where.device) == where[:, None]
        ctx.save_for_backward(mask.to(images.dtype))
        ctx.images, ctx.size = images.shape, size
        return _pooled(largest, images.shape, size)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return from_windows(mask * grad.reshape(-1, 1), ctx.images, ctx.size), None


def _pooled(largest: Tensor, shape: torch.Size, size: int) -> Tensor:
    return largest.view(shape[0], shape[1], shape[2] // size, shape[3] // size)


class Rectifier(Function):
    """max(x, 0)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x > 0
        ctx.save_for_backward(positive)
        return x * positive

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        to_input: Tensor = grad * positive
        return to_input


class Affine(Function):
    """Rows (n, inputs) by a matrix (inputs, outputs), and a bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grad @ weight.T, x.T @ grad, grad.sum(dim=0)


class Drop(Function):
    """A share of the values, chosen anew each time, set to zero and the rest scaled up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        scale = (torch.rand_like(x) >= share).to(x.dtype) / (1.0 - share)
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (scale,) = ctx.saved_tensors
        return grad * scale, None


class SoftmaxCrossEntropy(Function):
    """Logits (n, classes) against rows of zeros and a one; the mean over rows."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        powers = (logits - logits.amax(dim=1, keepdim=True)).exp()
        shares = powers / powers.sum(dim=1, keepdim=True)
        ctx.save_for_backward(shares, targets)
        return -(targets * (shares + 1e-7).log()).sum() / logits.shape[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        shares, targets = ctx.saved_tensors
        return grad * (shares - targets) / shares.shape[0], None


class Layer(nn.Module):
    """A layer whose two passes are those of a ``Function``, with what follows the inputs fixed."""

    def __init__(self, passes: type[Function], *fixed: Any) -> None:
        super().__init__()
        self.passes, self.fixed = passes, fixed

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.passes.apply(*inputs, *self.fixed)


class Dropout(Layer):
    """Active in training only."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return super().forward(*inputs) if self.training else inputs[0]


class Weighted(Layer):
    """A layer with weights of ``shape`` and a bias; ``inputs`` values are summed up for each output."""

    def __init__(self, passes: type[Function], shape: tuple[int, ...], inputs: int, outputs: int) -> None:
        super().__init__(passes)
        self.weight = nn.Parameter(torch.randn(shape) * (2.0 / inputs) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.passes.apply(*inputs, self.weight, self.bias)


def convolution(channels: int, filters: int) -> Weighted:
    """3×3, no padding."""
    return Weighted(Convolution, (filters, channels, 3, 3), 9 * channels, filters)


def dense(inputs: int, outputs: int) -> Weighted:
    """A fully connected layer."""
    return Weighted(Affine, (inputs, outputs), inputs, outputs)


def _supervised(**layers: nn.Module) -> Supervised:
    return Supervised(nn.Sequential(OrderedDict(layers)), Layer(SoftmaxCrossEntropy))


def _small(pooling: type[Function]) -> Supervised:
    return _supervised(
        conv=convolution(1, 10),
        relu1=Layer(Rectifier),
        pool=Layer(pooling, 2),
        flatten=nn.Flatten(),
        dense1=dense(10 * 13 * 13, 100),
        relu2=Layer(Rectifier),
        dense2=dense(100, 10),
    )


def by_index() -> Supervised:
    """Images (n, 1, 28, 28) and one-hot labels (n, 10) to the loss; the pooling assigns gradients to indices."""
    return _small(MaxPoolByIndex)


def by_mask() -> Supervised:
    """The same, pooling by a 0/1 mask."""
    return _small(MaxPoolByMask)


def large_by_index() -> Supervised:
    """32 and 64 filters, pooling by index assignment, dropout, 128 units, dropout."""
    return _supervised(
        conv1=convolution(1, 32),
        relu1=Layer(Rectifier),
        conv2=convolution(32, 64),
        relu2=Layer(Rectifier),
        pool=Layer(MaxPoolByIndex, 2),
        dropout1=Dropout(Drop, 0.25),
        flatten=nn.Flatten(),
        dense1=dense(64 * 12 * 12, 128),
        relu3=Layer(Rectifier),
        dropout2=Dropout(Drop, 0.5),
        dense2=dense(128, 10),
    )
