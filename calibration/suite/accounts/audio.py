"""One step of an autoregressive vocoder, and a scattering transform of audio."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.scattering import Scattering
from placer.calibration.suite.accounts.steps import Stays, Waited


class Queue(nn.Module):
    """The last ``2 * size`` samples of a signal (1, channels, 1), shifted by one sample at each call."""

    newer: Tensor
    older: Tensor

    def __init__(self, size: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("newer", torch.zeros(1, channels, size))
        self.register_buffer("older", torch.zeros(1, channels, size))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.older[:, :, :-1] = self.older[:, :, 1:].clone()
        self.older[:, :, -1] = self.newer[:, :, 0]
        self.newer[:, :, :-1] = self.newer[:, :, 1:].clone()
        self.newer[:, :, -1] = x[:, :, 0]
        return self.newer[:, :, :1], self.older[:, :, :1]


class FFTNetLayer(nn.Module):
    """Two samples ``size`` apart, of the signal and of the condition where there is one, each convolved and summed."""

    def __init__(self, size: int, inputs: int, condition: int = 0) -> None:
        super().__init__()
        widths = (inputs, *((condition,) if condition else ()))
        self.queues = nn.ModuleList([Queue(size, width) for width in widths])
        self.new = nn.ModuleList([nn.Conv1d(width, 256, 1) for width in widths])
        self.old = nn.ModuleList([nn.Conv1d(width, 256, 1) for width in widths])

    def forward(self, *signals: Tensor) -> Tensor:
        found = []
        for queue, new, old, signal in zip(self.queues, self.new, self.old, signals, strict=True):
            newer, older = queue(signal)
            found.append(new(newer) + old(older))
        total: Tensor = sum(found[1:], found[0])
        return total


class FFTNetStep(nn.Module):
    """One sample of FFTNet, eleven layers of 256: a sample (1, 1, 1) and a condition (1, 80, 1) to 256 logits."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [2**i for i in reversed(range(11))]
        self.first = FFTNetLayer(sizes[0], 1, 80)
        self.layers = nn.ModuleList([FFTNetLayer(size, 256) for size in sizes[1:]])
        self.classify = nn.Linear(256, 256)

    def forward(self, sample: Tensor, condition: Tensor) -> Tensor:
        x = self.first(sample, condition)
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.classify(x.transpose(1, 2))
        return out


def _sample() -> tuple[Tensor, Tensor]:
    return torch.zeros(1, 1, 1), torch.zeros(1, 80, 1)


_SCATTERING = (
    Part(lambda: Waited(Scattering(16, 10, 8)), lambda: (torch.zeros(64, 2**16),), "infer", data="device"),
)  # fmt: skip

ACCOUNTS = (
    Account(
        "erogol-fftnet", "GTX 1080", hosts.DESKTOP_2017, "GTX 1080 and i7-6700K: neither is named (2018)",
        "20,000 steps of samples that are on the device; on the GPU gradients are recorded. Today's PyTorch wants a"
        " copy before a queue is shifted onto itself: two more operators a queue.",
        (Point("step", (Part(lambda: Stays(FFTNetStep()), _sample, "infer", data="device"),)),),
        "placer prices the 24 convolutions of one sample too high on the CPU (measured elsewhere: a quarter), and the"
        " issue of an operator on the GPU at half of what PyTorch 0.4 took with gradients recorded.",
    ),
    Account(
        "kymatio-93", "Quadro M4000", hosts.XEON_2_X_6_CORES, "the V100's form (PCIe), and the CPU's model",
        "Ten transforms of a batch that is on the device.",
        (Point("M4000", _SCATTERING), Point("V100 (other host)", _SCATTERING, gpu="V100-PCIE-16GB")),
    ),
)  # fmt: skip
