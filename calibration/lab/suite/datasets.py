"""Data sets like those of the accounts, generated: the same rows every time, nothing is downloaded."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: The constants of Lorenz's convection model.
SIGMA, RHO, BETA = 10.0, 28.0, 8.0 / 3.0
#: Steps of the integrator between two points of a trajectory: more change it by less than float32 shows.
_SUBSTEPS = 4


def lorenz(count: int, points: int = 101) -> tuple[Tensor, Tensor]:
    """``count`` starts (count, 3) near the attractor and the way from each in [0, 1]: (points, count, 3)."""
    generator = torch.Generator().manual_seed(0)
    start = torch.tensor([-8.0, 7.0, 27.0]) + torch.randn(count, 3, generator=generator)
    h = 1.0 / (points - 1) / _SUBSTEPS
    state = start.double()
    path = [state]
    for _ in range(points - 1):
        for _ in range(_SUBSTEPS):
            k1 = _lorenz_derivative(state)
            k2 = _lorenz_derivative(state + h / 2 * k1)
            k3 = _lorenz_derivative(state + h / 2 * k2)
            k4 = _lorenz_derivative(state + h * k3)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(state)
    return start, torch.stack(path).float()


def _lorenz_derivative(state: Tensor) -> Tensor:
    x, y, z = state.unbind(-1)
    return torch.stack([SIGMA * (y - x), x * (RHO - z) - y, x * y - BETA * z], dim=-1)


def surface(rows: int) -> tuple[Tensor, Tensor]:
    """Points (rows, 2) of a square and the height (rows, 1) of a smooth surface above them."""
    points = 4.0 * torch.rand(rows, 2, generator=torch.Generator().manual_seed(0)) - 2.0
    return points, (points[:, :1] * math.pi / 2).sin() * (points[:, 1:] * math.pi / 2).cos()


def features(rows: int) -> tuple[Tensor, Tensor]:
    """84 measurements per row (rows, 84), and a target (rows, 1) that depends on all of them, not linearly."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(84, 1, generator=generator) / 84**0.5
    x = torch.randn(rows, 84, generator=generator)
    return x, (x @ weights).tanh() + 0.5 * (x.roll(1, dims=1) * x) @ weights.abs()


def series(rows: int, time: int, width: int) -> tuple[Tensor, Tensor]:
    """Series of several sine-like features (rows, time, width), and the mean (rows, 1) of their next values."""
    generator = torch.Generator().manual_seed(0)
    phase = 2 * math.pi * torch.rand(rows, 1, width, generator=generator)
    pace = 0.1 + 0.4 * torch.rand(rows, 1, width, generator=generator)
    moments = torch.arange(time + 1).view(1, -1, 1)
    values = (phase + pace * moments).sin()
    return values[:, :-1].contiguous(), values[:, -1].mean(dim=1, keepdim=True)


def digits(rows: int) -> tuple[Tensor, Tensor]:
    """Images (rows, 1, 28, 28) of ten blurred shapes under noise, and which shape each is: (rows,) of int64."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(10, 1, 7, 7, generator=generator)
    shapes = torch.nn.functional.interpolate(coarse, size=28, mode="bilinear", align_corners=False)
    labels = torch.randint(0, 10, (rows,), generator=generator)
    return shapes[labels] + 0.3 * torch.randn(rows, 1, 28, 28, generator=generator), labels


def one_hot_digits(rows: int) -> tuple[Tensor, Tensor]:
    """``digits`` with labels as rows of zeros and a one, as a loss written by hand takes them: (rows, 10)."""
    images, labels = digits(rows)
    return images, torch.eye(10)[labels]
