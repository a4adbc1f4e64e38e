"""Classifiers of 1000 classes made of depthwise separable convolutions: MobileNet, MobileNetV2 and Xception."""

from __future__ import annotations

from torch import Tensor, nn

#: Channels and stride of MobileNet's separable convolutions.
_MOBILE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
#: Expansion, channels, repeats and first stride of MobileNetV2's inverted residuals.
_MOBILE_V2 = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
)  # fmt: skip


def mobilenet() -> nn.Sequential:
    """(batch, 3, 224, 224) to (batch, 1000)."""
    layers: list[nn.Module] = [_normalised(3, 32, 3, 2)]
    channels = 32
    for width, stride in _MOBILE:
        layers += [_normalised(channels, channels, 3, stride, groups=channels), _normalised(channels, width)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Dropout(1e-3), nn.Conv2d(channels, 1000, 1), nn.Flatten())


def mobilenet_v2() -> nn.Sequential:
    """(batch, 3, 224, 224) to (batch, 1000)."""
    layers: list[nn.Module] = [_normalised(3, 32, 3, 2)]
    channels = 32
    for expansion, width, repeats, first in _MOBILE_V2:
        for i in range(repeats):
            layers.append(InvertedResidual(channels, width, first if i == 0 else 1, expansion))
            channels = width
    return nn.Sequential(
        *layers, _normalised(channels, 1280), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)
    )  # fmt: skip


class InvertedResidual(nn.Module):
    """Expand, convolve each channel, project; added to the input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = expansion * inputs
        self.block = nn.Sequential(
            *([_normalised(inputs, hidden)] if expansion > 1 else []),
            _normalised(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(x)
        return x + out if self.adds else out


def _normalised(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )  # fmt: skip


def xception() -> nn.Sequential:
    """(batch, 3, 299, 299) to (batch, 1000)."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        XceptionBlock(64, (128, 128), halves=True, rectified=False),
        XceptionBlock(128, (256, 256), halves=True), XceptionBlock(256, (728, 728), halves=True),
    ]  # fmt: skip
    layers += [XceptionBlock(728, (728, 728, 728)) for _ in range(8)]
    layers.append(XceptionBlock(728, (728, 1024), halves=True))
    for inputs, outputs in ((1024, 1536), (1536, 2048)):
        layers += [*separable(inputs, outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class XceptionBlock(nn.Module):
    """Separable convolutions beside a shortcut; one that halves the image has a convolution on the shortcut."""

    def __init__(self, inputs: int, widths: tuple[int, ...], *, halves: bool = False, rectified: bool = True) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = inputs
        for i, width in enumerate(widths):
            layers += [*([nn.ReLU()] if rectified or i > 0 else []), *separable(channels, width)]
            channels = width
        self.block = nn.Sequential(*layers, *([nn.MaxPool2d(3, 2, 1)] if halves else []))
        self.shortcut: nn.Module = nn.Identity()
        if halves:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, channels, 1, 2, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(x) + self.shortcut(x)
        return out


def separable(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    """A convolution of each channel, one across channels, and a normalisation after both."""
    return [
        nn.Conv2d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs, bias=False),
        nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
    ]  # fmt: skip
