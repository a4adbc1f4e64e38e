"""A neural ODE is priced by its whole solution, and model and states move together."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from placer.integrations import torchdiffeq as integration

torchdiffeq = pytest.importorskip("torchdiffeq", reason="torchdiffeq is not installed")


class Spiral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t: Tensor, y: Tensor) -> Tensor:
        result: Tensor = self.net(y**3)
        return result


def trained(method: str, adjoint: bool, placed: bool) -> list[float]:
    torch.manual_seed(0)
    func = Spiral()
    optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-3)
    y0, t = torch.tensor([[2.0, 0.0]]), torch.linspace(0.0, 1.0, 4)
    truth = torch.randn(4, 1, 2)
    if placed:
        placement = integration.choose(
            func, y0, t, method=method, adjoint=adjoint, optimizer=optimizer, devices="cpu",
            loss=lambda trajectory: trajectory.abs().mean(),
        )  # fmt: skip
        assert placement.confidence == 1.0
        y0, t, truth = placement.to((y0, t, truth))
    solve = torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (solve(func, y0, t, method=method) - truth).abs().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("method", "adjoint"), [("rk4", False), ("dopri5", False), ("rk4", True)])
def test_training_ends_with_the_same_losses(method: str, adjoint: bool) -> None:
    assert trained(method, adjoint, placed=True) == trained(method, adjoint, placed=False)


def test_a_finer_grid_costs_more() -> None:
    func, y0 = Spiral(), torch.tensor([[2.0, 0.0]])
    steps = [
        integration.choose(func, y0, torch.linspace(0.0, 1.0, n), method="euler", mode="infer", devices="cpu")
        .predictions["cpu"].step_seconds
        for n in (3, 30)
    ]  # fmt: skip
    assert steps[1] > 3 * steps[0]


def test_a_function_that_cannot_be_moved_is_refused() -> None:
    with pytest.raises(TypeError, match=r"func must be an nn\.Module, so that it can be moved, not function"):
        integration.choose(lambda t, y: y, torch.ones(1), torch.ones(2))
