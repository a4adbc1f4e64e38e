"""A liquid time-constant network: a recurrent cell that solves a small differential equation in every step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.steps import Waited

#: Neurons (40 between, 14 of command, 12 of output), inputs, and steps of the solver in each time step.
_NEURONS, _INPUTS, _UNFOLDS = 66, 16, 6
#: Time steps that are priced at once; the account's sequence has 300.
_STEPS = 30


class Synapses(nn.Module):
    """Sigmoid synapses from ``sources`` to all neurons: (batch, sources) to two sums over the sources."""

    mask: Tensor

    def __init__(self, sources: int) -> None:
        super().__init__()
        shape = (sources, _NEURONS)
        self.weight, self.middle, self.slope = (nn.Parameter(torch.ones(shape)) for _ in range(3))
        self.register_buffer("mask", torch.ones(shape))
        self.reversal = nn.Parameter(torch.ones(shape))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        activation = self.weight * torch.sigmoid(self.slope * (x[:, :, None] - self.middle)) * self.mask
        return (activation * self.reversal).sum(dim=1), activation.sum(dim=1)


class LiquidNetwork(nn.Module):
    """(batch, time, 16) to the last state of its twelve outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(_INPUTS)), nn.Parameter(torch.zeros(_INPUTS))
        self.sensory, self.inner = Synapses(_INPUTS), Synapses(_NEURONS)
        self.capacity, self.leak, self.rest = (nn.Parameter(torch.ones(_NEURONS)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], _NEURONS)
        for inputs in x.unbind(dim=1):
            push, pull = self.sensory(inputs * self.scale + self.shift)
            capacity = self.capacity * _UNFOLDS
            for _ in range(_UNFOLDS):
                reversed_sum, total = self.inner(state)
                numerator = capacity * state + self.leak * self.rest + reversed_sum + push
                state = numerator / (capacity + self.leak + total + pull + 1e-8)
        return state[:, -12:]


_SEQUENCE = Part(
    lambda: Waited(LiquidNetwork()), lambda: (torch.zeros(1, _STEPS, _INPUTS),), "infer", data="device",
    count=300 / _STEPS,
)  # fmt: skip

ACCOUNTS = (
    Account(
        "ncps-24", "Tesla K80", hosts.SERVER_4_CORES,
        "the CPU's machine (four cores of a Xeon); a batch of one",
        "A call in TensorFlow 2.3. CPU and GPU are in different machines.",
        (Point("call", (_SEQUENCE,), gpu_host=hosts.XEON_E5_2690_V3),),
    ),
)  # fmt: skip
