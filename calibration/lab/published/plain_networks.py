"""Published networks that no package builds: written here, from what their sources say of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional


class NeuMF(nn.Module):
    """A product of factors beside a multilayer perceptron (He et al. 2017), on embeddings of users and items.

    The sizes are those of NVIDIA's benchmark on MovieLens 20M.
    """

    USERS, ITEMS = 138_493, 26_744
    FACTORS, LAYERS, DROPOUT = 64, (256, 256, 128, 64), 0.5

    def __init__(self) -> None:
        super().__init__()
        half = self.LAYERS[0] // 2
        self.user_factors = nn.Embedding(self.USERS, self.FACTORS)
        self.item_factors = nn.Embedding(self.ITEMS, self.FACTORS)
        self.user_inputs, self.item_inputs = nn.Embedding(self.USERS, half), nn.Embedding(self.ITEMS, half)
        self.layers = nn.ModuleList(nn.Linear(n, m) for n, m in pairwise(self.LAYERS))
        self.last = nn.Linear(self.LAYERS[-1] + self.FACTORS, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Logits (pairs, 1)."""
        factors = self.user_factors(user) * self.item_factors(item)
        x = torch.cat((self.user_inputs(user), self.item_inputs(item)), dim=1)
        for layer in self.layers:
            x = torch.relu(functional.dropout(layer(x), self.DROPOUT, self.training))
        logits: Tensor = self.last(torch.cat((factors, x), dim=1))
        return logits


def omniglot() -> nn.Module:
    """Three convolutions for characters, of five classes (torchbench's maml_omniglot)."""
    blocks: list[nn.Module] = []
    for channels in (1, 64, 64):
        blocks += [nn.Conv2d(channels, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(64, 5))


class _Dense(nn.Module):
    """Two convolutions whose result is put behind the input's channels."""

    def __init__(self, channels: int, growth: int, wide: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, wide * growth, 1, bias=False),
            nn.BatchNorm2d(wide * growth),
            nn.ReLU(),
            nn.Conv2d(wide * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.layers(x), x], dim=1)


def small_densenet() -> nn.Module:
    """A DenseNet for images of 32 x 32 pixels (torchbench's phlippe_densenet): four blocks of six layers."""
    growth, wide, blocks = 16, 2, (6, 6, 6, 6)
    channels = growth * wide
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1)]
    for number, count in enumerate(blocks, 1):
        layers += [_Dense(channels + i * growth, growth, wide) for i in range(count)]
        channels += count * growth
        if number < len(blocks):
            layers += [
                nn.BatchNorm2d(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels // 2, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            channels //= 2
    return nn.Sequential(
        *layers, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)
    )


def graph_isomorphism() -> nn.Module:
    """Three layers of a graph isomorphism network (torchbench's basic_gnn_gin)."""
    layers = importlib.import_module("torch_geometric.nn")
    built: nn.Module = layers.GIN(64, 64, num_layers=3)
    return built


class CountsAutoencoder(nn.Module):
    """A variational autoencoder of counts of genes, with its loss (scvi-tools' SCVI, at its defaults).

    One hidden layer each way; a zero-inflated negative binomial, whose dispersion is one number for each gene.
    """

    GENES, HIDDEN, LATENT = 1200, 128, 10

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(*self._layer(self.GENES), nn.Dropout(0.1))
        self.mean, self.variance = (nn.Linear(self.HIDDEN, self.LATENT) for _ in range(2))
        self.decoder = nn.Sequential(*self._layer(self.LATENT))
        self.scale, self.missing = (nn.Linear(self.HIDDEN, self.GENES) for _ in range(2))
        self.dispersion = nn.Parameter(torch.zeros(self.GENES))

    def _layer(self, width: int) -> list[nn.Module]:
        return [nn.Linear(width, self.HIDDEN), nn.BatchNorm1d(self.HIDDEN, eps=1e-3), nn.ReLU()]

    def forward(self, counts: Tensor) -> Tensor:
        """The loss of counts (cells, genes)."""
        hidden = self.encoder(torch.log1p(counts))
        latent = Normal(self.mean(hidden), (torch.exp(self.variance(hidden)) + 1e-4).sqrt(), validate_args=False)
        decoded = self.decoder(latent.rsample())
        rate = torch.exp(torch.log(counts.sum(1, keepdim=True))) * torch.softmax(self.scale(decoded), dim=-1)
        missed = self._log_likelihood(counts, rate, self.missing(decoded)).sum(-1)
        prior = Normal(torch.zeros_like(latent.loc), torch.ones_like(latent.scale), validate_args=False)
        return (kl_divergence(latent, prior).sum(-1) - missed).mean()

    def _log_likelihood(self, counts: Tensor, rate: Tensor, missing: Tensor, eps: float = 1e-8) -> Tensor:
        dispersion = torch.exp(self.dispersion)
        at_zero = functional.softplus(-missing)
        log_both = torch.log(dispersion + rate + eps)
        log_zero = -missing + dispersion * (torch.log(dispersion + eps) - log_both)
        zero = functional.softplus(log_zero) - at_zero
        above = (
            log_zero
            - at_zero
            + counts * (torch.log(rate + eps) - log_both)
            + torch.lgamma(counts + dispersion)
            - torch.lgamma(dispersion)
            - torch.lgamma(counts + 1.0)
        )
        return (counts < eps).float() * zero + (counts > eps).float() * above


#: By the name that a step's arguments give.
PLAIN: Mapping[str, Callable[[], nn.Module]] = {
    "omniglot": omniglot, "small_densenet": small_densenet, "gin": graph_isomorphism, "counts": CountsAutoencoder,
}  # fmt: skip
