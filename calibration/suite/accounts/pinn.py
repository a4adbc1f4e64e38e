"""A physics-informed network: its derivatives with respect to the inputs are part of the loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.mlp import mlp
from placer.calibration.suite.reference.supervised import own_loss


class Residual(nn.Module):
    """Points (batch, 3) to the loss of the two-dimensional equations of an incompressible flow in x, y and t.

    Three outputs, the velocities and the pressure; their first derivatives, and second ones of both velocities.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, points: Tensor) -> Tensor:
        points = points.detach().requires_grad_()
        u, v, p = self.network(points).unbind(1)
        of_u, of_v, of_p = (_slope(value, points) for value in (u, v, p))
        momentum: Tensor = points.new_zeros(())
        for slope, pressure in ((of_u, of_p[:, 0]), (of_v, of_p[:, 1])):
            curved = _slope(slope[:, 0], points)[:, 0] + _slope(slope[:, 1], points)[:, 1]
            carried = u * slope[:, 0] + v * slope[:, 1]
            momentum = momentum + (slope[:, 2] + carried + pressure - 0.01 * curved).square().mean()
        return momentum + (of_u[:, 0] + of_v[:, 1]).square().mean()


def _slope(value: Tensor, points: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(value.sum(), points, create_graph=True)
    return found


def network() -> nn.Module:
    """Ten layers of 24 units."""
    return Residual(mlp((3, *[24] * 10, 3), nn.Tanh))


ACCOUNTS = (
    Account(
        "sciann-8", "T4", hosts.DESKTOP_2020, "both, batch (64: the package's default), the equations (a flow's)",
        "Keras's fit of an epoch.",
        (Point("epoch (approx.)", (Part(network, lambda: (torch.rand(64, 3),), "train", loss=own_loss),)),),
    ),
)  # fmt: skip
