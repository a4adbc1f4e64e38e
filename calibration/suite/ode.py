"""Neural ordinary differential equations: hundreds of calls of a very small network in one step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import mean_squared


def field() -> nn.Sequential:
    """The 3-100-3 network that gives the derivative."""
    return nn.Sequential(nn.Linear(3, 100), nn.Tanh(), nn.Linear(100, 3))


class HandWritten(nn.Module):
    """Fixed-step Runge-Kutta 4 written out in Python: (batch, 3) states to (steps, batch, 3)."""

    def __init__(self, steps: int = 20) -> None:
        super().__init__()
        self.field = field()
        self.steps = steps

    def forward(self, y: Tensor) -> Tensor:
        h = 1.0 / self.steps
        path = []
        for _ in range(self.steps):
            k1 = self.field(y)
            k2 = self.field(y + h / 2 * k1)
            k3 = self.field(y + h / 2 * k2)
            k4 = self.field(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(y)
        return torch.stack(path)


class Solved(nn.Module):
    """The same through torchdiffeq: (batch, 3) states to (points, batch, 3)."""

    times: Tensor

    def __init__(self, method: str, points: int = 11) -> None:
        super().__init__()
        self.field = field()
        self.method = method
        self.register_buffer("times", torch.linspace(0.0, 1.0, points))

    def derivative(self, _: Tensor, y: Tensor) -> Tensor:
        """The right-hand side, independent of time."""
        out: Tensor = self.field(y)
        return out

    def forward(self, y: Tensor) -> Tensor:
        from torchdiffeq import odeint

        out: Tensor = odeint(self.derivative, y, self.times, method=self.method)
        return out


ENTRIES = (
    Entry(
        "neural_ode_rk4_by_hand", "ode", HandWritten, lambda n: torch.randn(n, 3), (1, 64, 1000), loss=mean_squared,
        suites=frozenset({"quick", "full"}),
    ),
    Entry(
        "neural_ode_rk4", "ode", lambda: Solved("rk4"), lambda n: torch.randn(n, 3), (1, 256), loss=mean_squared,
        needs=("torchdiffeq",),
    ),
    Entry(
        "neural_ode_dopri5", "ode", lambda: Solved("dopri5"), lambda n: torch.randn(n, 3), (1, 256), loss=mean_squared,
        needs=("torchdiffeq",),
    ),
)  # fmt: skip
