"""Solvers of differential equations: a small field evaluated again and again."""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor, nn

from placer.calibration.benchmarks.networks.layers import ALONE, USUAL_ACTIVATIONS, Layers
from placer.calibration.benchmarks.probe import log_int, tensor
from placer.calibration.benchmarks.recurrent import PER_STEP

#: Share of solvers that keep the time in tensors.
CLOCKED = 0.5


class Iterated(nn.Module):
    """A field followed step by step, ``stages`` evaluations each, as solvers of differential equations do.

    Slopes are put together one by one, or stacked and multiplied by their weights. ``clocked``: the time and the size
    of a step are tensors of one number, which are compared and read before every step, as solvers do that choose it.
    """

    def __init__(self, field: nn.Module, steps: int, stages: int, stacked: bool, clocked: bool = False) -> None:
        super().__init__()
        self.field, self.steps, self.stages, self.stacked, self.clocked = field, steps, stages, stacked, clocked
        self.register_buffer("weights", torch.full((stages,), 0.1 / stages))
        self.register_buffer("interval", torch.tensor([0.0, 1.0 / steps]))

    def forward(self, x: Tensor) -> Tensor:
        if not self.clocked:
            for _ in range(self.steps):
                x = self._step(x, 0.1)
            return x
        start, width = self.get_buffer("interval").unbind()
        time, step = start, width
        for number in range(1, self.steps + 1):
            point = start + number * width
            reached = (time + step >= point) & (step > 0)
            if not reached:  # what rounding has left of the way
                step = torch.minimum(abs(point - time), 2 * step)
            x = self._step(x, step)
            time = time + step
        return x

    def _step(self, x: Tensor, step: float | Tensor) -> Tensor:
        weights = self.get_buffer("weights")
        slopes = [self.field(x)]
        while len(slopes) < self.stages:
            slopes.append(self.field(x + step * slopes[-1]))
        if self.stacked:
            return x + (torch.stack(slopes, -1) * weights).sum(-1)
        result: Tensor = x + sum(weight * slope for weight, slope in zip(weights, slopes, strict=True))
        return result


def solver(random: Random) -> tuple[Layers, Tensor]:
    """A solver with a fixed number of steps, of one to six stages each."""
    width, hidden = log_int(random, 1, 64), log_int(random, 4, 256)
    batch = 1 if random.random() < 2 * ALONE else log_int(random, 1, 256)
    steps, stages = log_int(random, 1, 64), random.randint(1, 6)
    field = nn.Sequential(nn.Linear(width, hidden), random.choice(USUAL_ACTIVATIONS)(), nn.Linear(hidden, width))
    layers = Layers()
    evaluations = float(steps * stages)
    layers.add(
        Iterated(field, steps, stages, stacked=random.random() < 0.5, clocked=random.random() < CLOCKED),
        flops=evaluations * (4.0 * batch * width * hidden + PER_STEP),
        elements=evaluations * batch * (2 * hidden + 4 * width),
    )
    return layers, tensor(*(() if batch == 1 and random.random() < 0.5 else (batch,)), width)
