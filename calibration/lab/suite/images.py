"""Convolutional networks over images and over time: classifiers, segmentation, generators, a diffusion backbone."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry, binary, cross_entropy, label_loss, mean_squared, randn
from placer.calibration.suite.quick import pixel_values, resnet


def normed(convolution: nn.Conv2d | nn.ConvTranspose2d, *activation: nn.Module) -> list[nn.Module]:
    """A convolution, a batch norm of its channels, and an activation where there is one."""
    return [convolution, nn.BatchNorm2d(convolution.out_channels), *activation]


def lenet() -> nn.Module:
    """LeNet-5 over 28 x 28 images."""
    first = [nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2)]
    second = [nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()]
    dense = [nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)]
    return nn.Sequential(*first, *second, *dense)


def vgg_small() -> nn.Module:
    """Conv-BatchNorm-ReLU stacks over 32 x 32 images."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 32, 64, 64, 128):
        layers += normed(nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True))
        if width != channels and channels != 3:
            layers.append(nn.MaxPool2d(2))
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


class Separable(nn.Module):
    """An inverted residual block: expand, depthwise, project."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * 4
        self.inner = nn.Sequential(
            *normed(nn.Conv2d(inputs, hidden, 1, bias=False), nn.ReLU6()),
            *normed(nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.ReLU6()),
            *normed(nn.Conv2d(hidden, outputs, 1, bias=False)),
        )
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out = self.inner(x)
        return x + out if self.skip else out


def mobilenet() -> nn.Module:
    """Depthwise separable blocks, as in MobileNetV2, over 96 x 96 images."""
    plan = ((16, 1), (24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1))
    blocks = normed(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.ReLU6())
    channels = 16
    for width, stride in plan:
        blocks.append(Separable(channels, width, stride))
        channels = width
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, 100))


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """The repeated unit of a U-Net."""
    first = normed(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True))
    return nn.Sequential(*first, *normed(nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(inplace=True)))


class UNet(nn.Module):
    """Two levels down and up: (batch, 1, size, size) to a mask of the same size."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down1 = double_conv(1, width)
        self.down2 = double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.out2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.out1 = double_conv(3 * width, width)
        self.mask = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        bottom = self.bottom(F.max_pool2d(second, 2))
        up = self.out2(torch.cat([self.up2(bottom), second], dim=1))
        up = self.out1(torch.cat([self.up1(up), first], dim=1))
        return self.mask(up)


def conv_autoencoder() -> nn.Module:
    """Strided convolutions down, transposed ones up, over 28 x 28 images."""
    down = [nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 7)]
    up = [nn.ReLU(), nn.ConvTranspose2d(64, 32, 7), nn.ReLU(), nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ReLU()]
    return nn.Sequential(*down, *up, nn.ConvTranspose2d(16, 1, 3, 2, 1, 1), nn.Sigmoid())


class GatedDilated(nn.Module):
    """A WaveNet: causal dilated convolutions, tanh-sigmoid gates, residual and skip paths over (batch, 1, time)."""

    def __init__(self, width: int = 24, levels: int = 7) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.dilations = [2**level for level in range(levels)]
        self.dilated = nn.ModuleList([nn.Conv1d(width, 2 * width, 2, dilation=step) for step in self.dilations])
        self.mix = nn.ModuleList([nn.Conv1d(width, 2 * width, 1) for _ in range(levels)])
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skips = torch.zeros_like(x)
        for dilation, conv, mix in zip(self.dilations, self.dilated, self.mix, strict=True):
            value, gate = conv(F.pad(x, (dilation, 0))).chunk(2, dim=1)
            residual, skip = mix(torch.tanh(value) * torch.sigmoid(gate)).chunk(2, dim=1)
            x = x + residual
            skips = skips + skip
        return self.head(skips)


class TemporalBlock(nn.Module):
    """The residual block of a temporal convolutional network."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.pad = (2 * dilation, 0)
        self.conv1 = nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(outputs, outputs, 3, dilation=dilation)
        self.match = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dropout(F.relu(self.conv1(F.pad(x, self.pad))))
        y = self.dropout(F.relu(self.conv2(F.pad(y, self.pad))))
        return F.relu(y + self.match(x))


def temporal_network() -> nn.Module:
    """A temporal convolutional network over 9 sensor channels."""
    blocks = [TemporalBlock(9 if i == 0 else 32, 32, 2**i) for i in range(4)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 6))


def dcgan_generator(latent: int = 64, width: int = 16) -> nn.Module:
    """(batch, latent, 1, 1) to images (batch, 3, 32, 32), by transposed convolutions."""
    return nn.Sequential(
        *normed(nn.ConvTranspose2d(latent, 4 * width, 4, 1, 0, bias=False), nn.ReLU(True)),
        *normed(nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.ReLU(True)),
        *normed(nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.ReLU(True)),
        nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def dcgan_discriminator(width: int = 16) -> nn.Module:
    """Images (batch, 3, 32, 32) to one logit each."""
    first = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
    second = normed(nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True))
    return nn.Sequential(*first, *second, nn.Conv2d(2 * width, 1, 8, 1, 0, bias=False), nn.Flatten())


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
        return self.last(h)


ENTRIES = (
    Entry("lenet", "cnn", lenet, randn(1, 28, 28), (16, 128, 1024), optimizer="sgd", loss=cross_entropy),
    Entry("vgg_small", "cnn", vgg_small, randn(3, 32, 32), (2, 16), loss=cross_entropy),
    Entry("mobilenet_like", "cnn", mobilenet, randn(3, 96, 96), (1, 8), optimizer="sgd", loss=cross_entropy),
    Entry("resnet50", "cnn", partial(resnet, [3, 4, 6, 3], [256, 512, 1024, 2048], "bottleneck"), pixel_values(96),
          (1, 4), optimizer="sgd", loss=label_loss, needs=("transformers",)),
    Entry("unet_small", "cnn", UNet, randn(1, 64, 64), (1, 8), loss=binary),
    Entry("conv_autoencoder", "cnn", conv_autoencoder, randn(1, 28, 28), (8, 64), loss=mean_squared),
    Entry("wavenet_like", "cnn", GatedDilated, randn(1, 512), (1, 16), loss=mean_squared),
    Entry("temporal_convolutional", "cnn", temporal_network, randn(9, 128), (4, 64), loss=cross_entropy),
    Entry("dcgan_generator", "generative", dcgan_generator, randn(64, 1, 1), (2, 32)),
    Entry("dcgan_discriminator", "generative", dcgan_discriminator, randn(3, 32, 32), (2, 64), loss=binary),
    Entry("diffusion_denoiser", "generative", Denoiser, lambda n: (torch.randn(n, 3, 32, 32), torch.rand(n)), (1, 16),
          optimizer="adamw", loss=mean_squared),
)  # fmt: skip
