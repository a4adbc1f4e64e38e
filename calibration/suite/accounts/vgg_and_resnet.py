"""VGG and ResNet classifiers of 1000 classes, as the papers and torchvision have them, and as Keras has them."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

#: Convolutions per resolution, and their channels.
_VGG = {16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_VGG_WIDTHS = (64, 128, 256, 512, 512)
#: Blocks per resolution.
_RESNET = {34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_RESNET_WIDTHS = (64, 128, 256, 512)

#: torchvision halves the image in a block's 3 x 3 convolution; Keras in the 1 x 1 before it, and gives every
#: convolution a bias.
Style = Literal["torchvision", "keras"]


def vgg(depth: int) -> nn.Sequential:
    """(batch, 3, 224, 224) to (batch, 1000). ``depth``: 16 or 19."""
    layers: list[nn.Module] = []
    channels = 3
    for repeats, width in zip(_VGG[depth], _VGG_WIDTHS, strict=True):
        for _ in range(repeats):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 4096),
        nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000),
    )  # fmt: skip


def resnet(depth: int, style: Style = "torchvision") -> nn.Sequential:
    """(batch, 3, 224, 224) to (batch, 1000). ``depth``: 34 (basic blocks), 50, 101 or 152 (bottlenecks)."""
    bias = style == "keras"
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=bias), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    channels = 64
    for stage, (repeats, width) in enumerate(zip(_RESNET[depth], _RESNET_WIDTHS, strict=True)):
        for i in range(repeats):
            stride = 2 if stage > 0 and i == 0 else 1
            block = _basic(channels, width, stride) if depth < 50 else _bottleneck(channels, width, stride, style)
            outputs = width if depth < 50 else 4 * width
            shortcut = _convolution(channels, outputs, 1, stride, bias) if channels != outputs else nn.Identity()
            layers.append(Residual(nn.Sequential(*block), shortcut))
            channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Residual(nn.Module):
    """A block beside its shortcut, added and rectified."""

    def __init__(self, block: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.block(x) + self.shortcut(x), inplace=True)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int, bias: bool) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=bias), nn.BatchNorm2d(outputs)
    )  # fmt: skip


def _basic(inputs: int, width: int, stride: int) -> list[nn.Module]:
    return [
        _convolution(inputs, width, 3, stride, bias=False), nn.ReLU(inplace=True),
        _convolution(width, width, 3, 1, bias=False),
    ]  # fmt: skip


def _bottleneck(inputs: int, width: int, stride: int, style: Style) -> list[nn.Module]:
    bias = style == "keras"
    first, second = (stride, 1) if style == "keras" else (1, stride)
    return [
        _convolution(inputs, width, 1, first, bias), nn.ReLU(inplace=True),
        _convolution(width, width, 3, second, bias), nn.ReLU(inplace=True),
        _convolution(width, 4 * width, 1, 1, bias),
    ]  # fmt: skip


def resnet50_v2() -> nn.Sequential:
    """Keras' ResNet50V2: normalised before each convolution, halved at the end of a stage."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (repeats, width) in enumerate(zip(_RESNET[50], _RESNET_WIDTHS, strict=True)):
        for i in range(repeats):
            stride = 2 if stage < 3 and i == repeats - 1 else 1
            layers.append(PreActivated(channels, width, stride))
            channels = 4 * width
    return nn.Sequential(
        *layers, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)
    )


class PreActivated(nn.Module):
    """The bottleneck of ResNet V2: the shortcut is a convolution where channels change, else a subsampling."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.widens = inputs != 4 * width
        self.shortcut = nn.Conv2d(inputs, 4 * width, 1, stride) if self.widens else nn.MaxPool2d(1, stride)
        self.block = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 4 * width, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        activated = self.activate(x)
        out: Tensor = self.shortcut(activated if self.widens else x) + self.block(activated)
        return out
