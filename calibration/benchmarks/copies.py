"""Copies as networks and people write them, from one layout to another; drawn among the elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor


def windows(length: int) -> Callable[[Tensor], Tensor]:
    """Overlapping stretches of every row, each copied: an innermost loop of ``length`` elements, as in unfolding."""
    return lambda x: x.unfold(-1, min(length, x.shape[-1]), 1).contiguous()


def blocks(side: int) -> Callable[[Tensor], Tensor]:
    """The rows cut into squares of ``side`` elements, each laid out by itself."""

    def cut(x: Tensor) -> Tensor:
        rows, columns = (max(n // side, 1) for n in x.shape)
        squares: Tensor = x[: rows * side, : columns * side].unflatten(0, (rows, -1)).unflatten(2, (columns, -1))
        return squares.transpose(1, 2).contiguous()

    return cut


def patches(side: int, step: int) -> Callable[[Tensor], Tensor]:
    """Every square of ``side`` elements as one row, ``step`` apart: convolution and pooling written out by hand."""

    def unfold(x: Tensor) -> Tensor:
        height, width = (min(side, n) for n in x.shape)
        return x.unfold(0, height, step).unfold(1, width, step).reshape(-1, height * width)

    return unfold


def unpatched(x: Tensor) -> Tensor:
    """The inverse of two by two patches side by side."""
    rows, columns = (max(n // 2, 1) for n in x.shape)
    side = 2 if min(x.shape) > 1 else 1
    parts = x.flatten()[: rows * columns * side**2].view(rows, columns, side, side)
    return parts.transpose(1, 2).reshape(rows * side, columns * side)


def add_patches_(x: Tensor) -> Tensor:
    """Overlapping patches of three by three added up where they came from: a convolution's gradient by hand."""
    columns = max(min(x.shape[1], x.numel() // 9), 1)
    rows = max(x.numel() // (9 * columns), 1)
    side = 3 if x.numel() >= 9 else 1
    squares = x.flatten()[: rows * columns * side**2].view(rows, columns, side, side)
    image = x.new_zeros(rows + side - 1, columns + side - 1)
    for i in range(side):
        for j in range(side):
            image[i : i + rows, j : j + columns] += squares[:, :, i, j]
    return image


def add_channels_(x: Tensor) -> Tensor:
    """The same for channels that lie side by side in the matrix of patches and apart in the image."""
    channels = next(n for n in (64, 16, 4, 1) if n <= max(x.shape[1], 1))
    side = 3 if x.numel() >= 9 * channels else 1
    length = math.isqrt(x.numel() // (channels * side**2))
    squares = x.flatten()[: length**2 * channels * side**2].view(length, length, channels, side, side)
    squares = squares.permute(2, 3, 4, 0, 1)
    image = x.new_zeros(channels, length + side - 1, length + side - 1)
    for i in range(side):
        for j in range(side):
            image[:, i : i + length, j : j + length] += squares[:, i, j]
    return image


def permuted(x: Tensor) -> Tensor:
    """Channels moved to the end, or from there."""
    images = min(4, x.shape[0])
    rows = x.shape[0] // images
    moved: Tensor = x[: images * rows].unflatten(0, (images, rows)).transpose(1, 2).contiguous()
    return moved


def add_half_(x: Tensor) -> Tensor:
    """Half of every row added to the other half, in place: a gradient that is put together from parts."""
    y, half = x * 1.5, x.shape[-1] // 2
    y[..., :half].add_(x[..., half : 2 * half])
    return y
