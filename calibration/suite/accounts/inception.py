"""Inception V3 and Inception-ResNet V2: classifiers of 1000 classes whose blocks run several branches side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: One convolution of a branch: outputs and kernel, with stride 2 and no padding where a third value says so.
_Step = tuple[int, int | tuple[int, int]] | tuple[int, int | tuple[int, int], bool]


class Branches(nn.Module):
    """Branches over the same input, concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _chain(inputs: int, *steps: _Step) -> nn.Sequential:
    layers: list[nn.Module] = []
    for outputs, kernel, *halves in steps:
        sides = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (0, 0) if halves else (sides[0] // 2, sides[1] // 2)
        layers.append(_normalised(inputs, outputs, sides, 2 if halves else 1, padding))
        inputs = outputs
    return nn.Sequential(*layers)


def _normalised(
    inputs: int, outputs: int, kernel: tuple[int, int], stride: int = 1, padding: tuple[int, int] = (0, 0)
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def _stem() -> list[nn.Module]:
    """(batch, 3, 299, 299) to (batch, 192, 35, 35)."""
    return [
        _normalised(3, 32, (3, 3), 2), _normalised(32, 32, (3, 3)), _normalised(32, 64, (3, 3), padding=(1, 1)),
        nn.MaxPool2d(3, 2), _normalised(64, 80, (1, 1)), _normalised(80, 192, (3, 3)), nn.MaxPool2d(3, 2),
    ]  # fmt: skip


def _pooled(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), *_chain(inputs, (outputs, 1)))


def _classifier(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]


def inception_v3() -> nn.Sequential:
    """(batch, 3, 299, 299) to (batch, 1000), without the auxiliary classifier."""
    layers = _stem()
    for inputs, pooled in ((192, 32), (256, 64), (288, 64)):
        layers.append(
            Branches(
                _chain(inputs, (64, 1)), _chain(inputs, (48, 1), (64, 5)),
                _chain(inputs, (64, 1), (96, 3), (96, 3)), _pooled(inputs, pooled),
            )
        )  # fmt: skip
    layers.append(
        Branches(_chain(288, (384, 3, True)), _chain(288, (64, 1), (96, 3), (96, 3, True)), nn.MaxPool2d(3, 2))
    )
    across, down = (1, 7), (7, 1)
    for width in (128, 160, 160, 192):
        layers.append(
            Branches(
                _chain(768, (192, 1)), _chain(768, (width, 1), (width, across), (192, down)),
                _chain(768, (width, 1), (width, down), (width, across), (width, down), (192, across)),
                _pooled(768, 192),
            )
        )  # fmt: skip
    layers.append(
        Branches(
            _chain(768, (192, 1), (320, 3, True)),
            _chain(768, (192, 1), (192, across), (192, down), (192, 3, True)), nn.MaxPool2d(3, 2),
        )
    )  # fmt: skip
    for inputs in (1280, 2048):
        layers.append(
            Branches(
                _chain(inputs, (320, 1)), nn.Sequential(_chain(inputs, (384, 1)), _split()),
                nn.Sequential(_chain(inputs, (448, 1), (384, 3)), _split()), _pooled(inputs, 192),
            )
        )  # fmt: skip
    return nn.Sequential(*layers, *_classifier(2048))


def _split() -> Branches:
    return Branches(_chain(384, (384, (1, 3))), _chain(384, (384, (3, 1))))


class ScaledResidual(nn.Module):
    """Branches projected back to the input's channels and added to it, scaled."""

    def __init__(self, channels: int, branches: Sequence[nn.Module], width: int, scale: float) -> None:
        super().__init__()
        self.block = nn.Sequential(Branches(*branches), nn.Conv2d(width, channels, 1))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.scale * self.block(x))


def inception_resnet_v2() -> nn.Sequential:
    """(batch, 3, 299, 299) to (batch, 1000)."""
    layers = _stem()
    layers.append(
        Branches(
            _chain(192, (96, 1)), _chain(192, (48, 1), (64, 5)), _chain(192, (64, 1), (96, 3), (96, 3)),
            _pooled(192, 64),
        )
    )  # fmt: skip
    for _ in range(10):
        branches = _chain(320, (32, 1)), _chain(320, (32, 1), (32, 3)), _chain(320, (32, 1), (48, 3), (64, 3))
        layers.append(ScaledResidual(320, branches, 128, 0.17))
    layers.append(
        Branches(_chain(320, (384, 3, True)), _chain(320, (256, 1), (256, 3), (384, 3, True)), nn.MaxPool2d(3, 2))
    )
    for _ in range(20):
        pair = _chain(1088, (192, 1)), _chain(1088, (128, 1), (160, (1, 7)), (192, (7, 1)))
        layers.append(ScaledResidual(1088, pair, 384, 0.1))
    layers.append(
        Branches(
            _chain(1088, (256, 1), (384, 3, True)), _chain(1088, (256, 1), (288, 3, True)),
            _chain(1088, (256, 1), (288, 3), (320, 3, True)), nn.MaxPool2d(3, 2),
        )
    )  # fmt: skip
    for _ in range(10):
        pair = _chain(2080, (192, 1)), _chain(2080, (192, 1), (224, (1, 3)), (256, (3, 1)))
        layers.append(ScaledResidual(2080, pair, 448, 0.2))
    return nn.Sequential(*layers, _chain(2080, (1536, 1)), *_classifier(1536))
