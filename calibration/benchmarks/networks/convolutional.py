"""Convolutional networks in one and two dimensions: plain, residual, bottleneck and separable layers."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from torch import Tensor, nn

from placer.calibration.benchmarks.networks.layers import ACTIVATIONS, ALONE, Layers
from placer.calibration.benchmarks.networks.parts import Residual
from placer.calibration.benchmarks.probe import log_int, tensor

#: Layers by number of dimensions.
_CONVOLUTION: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d}
_NORM: dict[int, Any] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d}
_POOL: dict[int, Any] = {1: nn.MaxPool1d, 2: nn.MaxPool2d}
_MEAN: dict[int, Any] = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d}


@dataclass
class _Image:
    """What the next layer is given, and how many channels it makes of it."""

    dims: int
    batch: int
    side: int
    channels: int
    width: int = 0

    @property
    def points(self) -> float:
        """Positions of all images."""
        return float(self.batch * self.side**self.dims)


@dataclass(frozen=True)
class _Style:
    """What all layers of one network have in common."""

    activation: Any
    normalized: bool
    bottleneck: bool
    #: Share of layers that are separable.
    separable: float
    #: Whether channels double wherever the image is halved, until they are many on few positions.
    staged: bool


def cnn(random: Random) -> tuple[Layers, Tensor]:
    """A network over images, or over series of several channels, with a linear head."""
    dims = random.choice((1, 2, 2))
    channels = random.choice((1, 1, 3, 3, 4, 16))
    side = log_int(random, 16, 1024) if dims == 1 else log_int(random, 8, 128)
    batch = 1 if random.random() < ALONE else log_int(random, 1, 512 if dims == 1 else 64)
    image = _Image(dims, batch, side, channels)
    x = tensor(batch, channels, *(side,) * dims)
    image.width = log_int(random, 4, 128)
    style = _Style(
        activation=random.choice(ACTIVATIONS),
        normalized=random.random() < 0.5,
        bottleneck=random.random() < 0.3,
        separable=0.7 if random.random() < 0.2 else 0.1,
        staged=random.random() < 0.4,
    )
    layers = Layers()
    for _ in range(log_int(random, 1, 12 if style.staged else 8)):
        points, width = image.points, image.width
        _add_convolution(layers, random, image, style)
        image.channels = width
        if style.normalized:
            layers.add(_NORM[dims](width), elements=points * width)
        layers.add(style.activation(), elements=points * width)
        if image.side >= (2 if style.staged else 8) and random.random() < (0.6 if style.staged else 0.4):
            _halve(layers, random, image, style, points)
    _add_head(layers, random, image)
    return layers, x


def _add_convolution(layers: Layers, random: Random, image: _Image, style: _Style) -> None:
    """One layer, whose result has ``image.width`` channels."""
    conv, norm, activation = _CONVOLUTION[image.dims], _NORM[image.dims], style.activation
    window, points, channels, width = 3**image.dims, image.points, image.channels, image.width
    if style.bottleneck and channels == width:
        inner = max(width // 4, 1)
        body = (
            conv(width, inner, 1, bias=False), norm(inner), activation(),
            conv(inner, inner, 3, padding=1, bias=False), norm(inner), activation(), conv(inner, width, 1),
        )  # fmt: skip
        layers.add(
            Residual(nn.Sequential(*body)),
            flops=2.0 * points * inner * (2 * width + window * inner),
            elements=points * (6 * inner + 2 * width),
        )
    elif random.random() < style.separable and channels > 3:
        layers.add(
            conv(channels, channels, 3, padding=1, groups=channels),
            conv(channels, width, 1),
            flops=2.0 * points * channels * (window + width),
            elements=points * width,
        )
    elif random.random() < 0.3 and channels == width:
        layers.add(
            Residual(nn.Sequential(conv(width, width, 3, padding=1), activation())),
            flops=2.0 * points * width * width * window,
            elements=3 * points * width,
        )
    else:
        kernel = random.choice((1, 3, 3, 5))
        layers.add(
            conv(channels, width, kernel, padding="same"),
            flops=2.0 * points * channels * width * kernel**image.dims,
            elements=points * width + channels * width * kernel**image.dims,
        )


def _halve(layers: Layers, random: Random, image: _Image, style: _Style, points: float) -> None:
    """Half the side, by pooling or by a strided convolution; ``points`` are the positions before."""
    width = image.width
    if random.random() < 0.6:
        layers.add(_POOL[image.dims](2), elements=points * width / 2)
        image.side = image.side // 2
    else:
        image.side = (image.side + 1) // 2
        layers.add(
            _CONVOLUTION[image.dims](width, width, 3, stride=2, padding=1),
            flops=2.0 * image.batch * image.side**image.dims * width * width * 3**image.dims,
        )
    if style.staged or random.random() < 0.5:
        image.width = min(2 * width, 512)


def _add_head(layers: Layers, random: Random, image: _Image) -> None:
    """A linear layer on every position, or on their mean."""
    if random.random() < 0.3:
        inputs = image.channels * image.side**image.dims
        layers.add(nn.Flatten(), nn.Linear(inputs, 10), flops=20.0 * image.batch * inputs)
    else:
        layers.add(
            _MEAN[image.dims](1),
            nn.Flatten(),
            nn.Linear(image.channels, log_int(random, 1, 100)),
            flops=float(image.batch * image.channels * image.side**image.dims),
        )
