"""Autoencoders over flattened images and table rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import mean_squared, variational
from placer.calibration.suite.mlp import mlp, rows


class Variational(nn.Module):
    """The VAE of PyTorch's examples: (batch, 784) to (reconstruction, mean, log variance)."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(784, 400), nn.ReLU())
        self.mean = nn.Linear(400, 20)
        self.log_variance = nn.Linear(400, 20)
        self.decode = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.encode(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(z), mean, log_variance


ENTRIES = (
    Entry("vae", "autoencoder", Variational, rows(784), (1, 128, 1024), loss=variational),
    Entry(
        "dense_autoencoder", "autoencoder", lambda: mlp((30, 24, 12, 6, 12, 24, 30), nn.LeakyReLU), rows(30),
        (16, 256, 4096), loss=mean_squared,
    ),
)  # fmt: skip
