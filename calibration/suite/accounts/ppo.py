"""Proximal policy optimisation: the networks of small policies, and the loss as Stable-Baselines3 computes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Rollout(NamedTuple):
    """A minibatch: what was seen and done, and what was thought of it then; (batch, ...) each."""

    observations: Tensor
    actions: Tensor
    log_probabilities: Tensor
    advantages: Tensor
    returns: Tensor


class ActorCritic(nn.Module):
    """A Gaussian policy and a value, each on features of their own or, with ``shared``, on common ones.

    ``features()`` makes a network of observations, whose output has ``width`` columns.
    """

    def __init__(self, features: Callable[[], nn.Module], width: int, actions: int, *, shared: bool) -> None:
        super().__init__()
        self.policy_features = features()
        self.value_features = self.policy_features if shared else features()
        self.mean = nn.Linear(width, actions)
        self.value = nn.Linear(width, 1)
        self.log_deviation = nn.Parameter(torch.zeros(actions))

    def think(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and standard deviation of the actions, and the values."""
        seen = self.policy_features(observations)
        of_value = seen if self.value_features is self.policy_features else self.value_features(observations)
        mean = self.mean(seen)
        return mean, torch.ones_like(mean) * self.log_deviation.exp(), self.value(of_value)


def log_probability(actions: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Of actions (batch, n) under normal distributions, summed over n."""
    variance = deviation**2
    return (-((actions - mean) ** 2) / (2 * variance) - deviation.log() - _HALF_LOG_2PI).sum(1)


class Act(nn.Module):
    """A step of a rollout: actions, their log probabilities and values of the observations."""

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, deviation, values = self.policy.think(observations)
        actions = torch.normal(mean, deviation)
        return actions, values, log_probability(actions, mean, deviation)


class Learn(nn.Module):
    """A minibatch of an update, down to its loss. ``reads``: how many scalars the script logs of each."""

    def __init__(self, policy: ActorCritic, *, reads: int = 0) -> None:
        super().__init__()
        self.policy = policy
        self.reads = reads

    def forward(self, *minibatch: Tensor) -> Tensor:
        seen = Rollout(*minibatch)
        mean, deviation, values = self.policy.think(seen.observations)
        advantages = (seen.advantages - seen.advantages.mean()) / (seen.advantages.std() + 1e-8)
        ratio = torch.exp(log_probability(seen.actions, mean, deviation) - seen.log_probabilities)
        clipped = torch.clamp(ratio, 0.8, 1.2)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        value_loss = nn.functional.mse_loss(seen.returns, values.flatten())
        entropy = -(0.5 + _HALF_LOG_2PI + deviation.log()).sum(1).mean()
        for logged in (policy_loss, value_loss, entropy, ratio.mean())[: self.reads]:
            logged.item()
        loss: Tensor = policy_loss + 0.5 * value_loss + 0.01 * entropy
        return loss


def rollout(batch: int, observation: tuple[int, ...], actions: int) -> Rollout:
    """An example of a minibatch."""
    ones = torch.ones(batch)
    return Rollout(torch.rand(batch, *observation), torch.rand(batch, actions), -ones, torch.randn(batch), ones)
