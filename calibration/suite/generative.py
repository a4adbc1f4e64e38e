"""Generators and diffusion backbones."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import binary, mean_squared


def dcgan_generator(latent: int = 64, width: int = 16) -> nn.Module:
    """(batch, latent, 1, 1) to images (batch, 3, 32, 32), by transposed convolutions."""
    return nn.Sequential(
        nn.ConvTranspose2d(latent, 4 * width, 4, 1, 0, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU(True),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(True),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True),
        nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )  # fmt: skip


def dcgan_discriminator(width: int = 16) -> nn.Module:
    """Images (batch, 3, 32, 32) to one logit each."""
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(2 * width, 1, 8, 1, 0, bias=False), nn.Flatten(),
    )  # fmt: skip


class Denoiser(nn.Module):
    """A residual block stack with group norm and a sinusoidal time embedding, the core of diffusion models."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.times = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(3)])
        self.norms = nn.ModuleList([nn.GroupNorm(8, width) for _ in range(3)])
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        half = self.width // 2
        rates = torch.exp(-math.log(10_000) / half * torch.arange(half, device=x.device))
        angles = time[:, None] * rates
        embedding = torch.cat([angles.sin(), angles.cos()], dim=1)
        h = self.first(x)
        for norm, conv, project in zip(self.norms, self.convs, self.times, strict=True):
            h = h + conv(F.silu(norm(h)) + project(embedding)[:, :, None, None])
        out: Tensor = self.last(h)
        return out


ENTRIES = (
    Entry("dcgan_generator", "generative", dcgan_generator, lambda n: torch.randn(n, 64, 1, 1), (2, 32)),
    Entry(
        "dcgan_discriminator", "generative", dcgan_discriminator, lambda n: torch.randn(n, 3, 32, 32), (2, 64),
        loss=binary,
    ),
    Entry(
        "diffusion_denoiser", "generative", Denoiser, lambda n: (torch.randn(n, 3, 32, 32), torch.rand(n)), (1, 16),
        optimizer="adamw", loss=mean_squared,
    ),
)  # fmt: skip
