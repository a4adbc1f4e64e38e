"""NASNet-A Mobile, a classifier found by architecture search: many small separable convolutions (Zoph et al. 2018)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.accounts.separable import separable


class NASNetMobile(nn.Module):
    """(batch, 3, 224, 224) to (batch, 1000): 4 cells of 44, of 88 and of 176 filters, with reductions between."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, bias=False), nn.BatchNorm2d(32))
        reductions, normals = (11, 22, 88, 176), {22: 44, 88: 88, 176: 176}
        self.cells = nn.ModuleList([ReductionCell(32, 32, 11, nn.Identity())])
        channels, before = 4 * 11, 32
        for filters in reductions[1:]:
            adjust = Halved(before, filters) if filters == 22 else _projected(before, filters)
            self.cells.append(ReductionCell(channels, filters, filters, adjust))
            channels, before = 4 * filters, channels
            width = normals[filters]
            for i in range(4):
                adjust = Halved(before, width) if i == 0 else _projected(before, width)
                self.cells.append(NormalCell(channels, width, adjust))
                channels, before = 6 * width, channels
        self.classify = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        before = x
        for cell in self.cells:
            x, before = cell(x, before), x
        out: Tensor = self.classify(F.relu(x).mean(dim=(2, 3)))
        return out


class NormalCell(nn.Module):
    """Five sums of pairs of branches over the last output and the one before it, concatenated."""

    def __init__(self, inputs: int, filters: int, adjust: nn.Module) -> None:
        super().__init__()
        self.narrow, self.adjust = _projected(inputs, filters), adjust
        self.branches = nn.ModuleList([_twice(filters, filters, kernel, 1) for kernel in (5, 3, 5, 3, 3)])

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        last, older = self.narrow(x), self.adjust(before)
        first, second, third, fourth, fifth = self.branches
        sums = (
            first(last) + second(older), third(older) + fourth(older), _mean(last) + older,
            _mean(older) + _mean(older), fifth(last) + last,
        )  # fmt: skip
        return torch.cat([older, *sums], dim=1)


class ReductionCell(nn.Module):
    """The same with a halved image: of the sums four are kept. ``older``: channels of the adjusted older output."""

    def __init__(self, inputs: int, older: int, filters: int, adjust: nn.Module) -> None:
        super().__init__()
        self.narrow, self.adjust = _projected(inputs, filters), adjust
        halving = ((filters, 5), (older, 7), (older, 7), (older, 5))
        self.branches = nn.ModuleList([_twice(source, filters, kernel, 2) for source, kernel in halving])
        self.last = _twice(filters, filters, 3, 1)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        last, older = self.narrow(x), self.adjust(before)
        first, second, third, fourth = self.branches
        one = first(last) + second(older)
        two = F.max_pool2d(last, 3, 2, 1) + third(older)
        three = F.avg_pool2d(last, 3, 2, 1) + fourth(older)
        four = _mean(one) + two
        five = self.last(one) + F.max_pool2d(last, 3, 2, 1)
        return torch.cat([two, three, four, five], dim=1)


class Halved(nn.Module):
    """Every second pixel, once from the corner and once from one pixel further in, projected and concatenated."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.normalise = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        halves = self.even(F.avg_pool2d(x, 1, 2)), self.odd(F.avg_pool2d(shifted, 1, 2))
        out: Tensor = self.normalise(torch.cat(halves, dim=1))
        return out


def _projected(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))


def _twice(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Sequential:
    """Two separable convolutions, each rectified before."""
    return nn.Sequential(
        nn.ReLU(), *separable(inputs, outputs, kernel, stride), nn.ReLU(), *separable(outputs, outputs, kernel)
    )  # fmt: skip


def _mean(x: Tensor) -> Tensor:
    return F.avg_pool2d(x, 3, 1, 1)
