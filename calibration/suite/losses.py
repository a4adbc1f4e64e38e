"""Losses as training scripts use them; each makes its own target, so that a cell's input stays the model's input."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor) -> Tensor:
    """Classes on dimension 1."""
    target = torch.zeros(logits.shape[:1] + logits.shape[2:], dtype=torch.int64, device=logits.device)
    return F.cross_entropy(logits, target)


def mean_squared(output: Tensor) -> Tensor:
    """Against zeros."""
    return F.mse_loss(output, torch.zeros_like(output))


def binary(logits: Tensor) -> Tensor:
    """Against zeros, from logits."""
    return F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits))


def variational(output: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Reconstruction and Kullback-Leibler terms of (reconstruction, mean, log variance)."""
    reconstruction, mean, log_variance = output
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return F.mse_loss(reconstruction, torch.zeros_like(reconstruction), reduction="sum") + divergence


def tabnet(output: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy and the sparsity term, as TabNet's own trainer weighs them."""
    logits, sparsity = output
    return cross_entropy(logits) - 1e-3 * sparsity


def actor_critic(output: tuple[Tensor, Tensor]) -> Tensor:
    """Policy gradient with an entropy bonus, and a value term, of (logits, values)."""
    logits, values = output
    log_probabilities = torch.log_softmax(logits, dim=-1)
    entropy = -(log_probabilities * log_probabilities.exp()).sum(-1)
    policy = -log_probabilities[:, 0].mean()
    return policy + 0.5 * values.square().mean() - 0.01 * entropy.mean()
