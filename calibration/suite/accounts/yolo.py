"""YOLOv3 on Darknet-53: boxes, objectness and 80 classes at three resolutions (Redmon and Farhadi 2018)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Three anchors a cell, each with four coordinates, an objectness and 80 classes.
_OUTPUTS = 3 * (4 + 1 + 80)
#: Residual blocks after each halving of the image.
_DARKNET = (1, 2, 8, 8, 4)


def _normalised(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1, inplace=True),
    )  # fmt: skip


class Shortcut(nn.Module):
    """A bottleneck of two convolutions, added to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            _normalised(channels, channels // 2, 1), _normalised(channels // 2, channels, 3)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.block(x)
        return out


class YOLOv3(nn.Module):
    """(batch, 3, 416, 416) to three maps of (batch, 255, 13 | 26 | 52, the same)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = _normalised(3, 32, 3)
        stages, channels = [], 32
        for repeats in _DARKNET:
            blocks = [Shortcut(2 * channels) for _ in range(repeats)]
            stages.append(nn.Sequential(_normalised(channels, 2 * channels, 3, 2), *blocks))
            channels *= 2
        self.stages = nn.ModuleList(stages)
        self.necks = nn.ModuleList(
            _neck(inputs, width) for inputs, width in ((1024, 512), (512 + 256, 256), (256 + 128, 128))
        )
        self.heads = nn.ModuleList(
            nn.Sequential(_normalised(width, 2 * width, 3), nn.Conv2d(2 * width, _OUTPUTS, 1))
            for width in (512, 256, 128)
        )
        self.narrow = nn.ModuleList([_normalised(512, 256, 1), _normalised(256, 128, 1)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.first(x)
        kept = []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        found = []
        for i, (neck, head) in enumerate(zip(self.necks, self.heads, strict=True)):
            if i > 0:
                x = torch.cat([F.interpolate(self.narrow[i - 1](x), scale_factor=2.0), kept[-1 - i]], dim=1)
            x = neck(x)
            found.append(head(x))
        return tuple(found)


def _neck(inputs: int, width: int) -> nn.Sequential:
    wide = 2 * width
    return nn.Sequential(
        _normalised(inputs, width, 1), _normalised(width, wide, 3), _normalised(wide, width, 1),
        _normalised(width, wide, 3), _normalised(wide, width, 1),
    )  # fmt: skip
