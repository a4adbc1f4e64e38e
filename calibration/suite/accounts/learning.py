"""Reinforcement learning: what a policy computes in a rollout and in an update. The environments are not rebuilt."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from placer.calibration.suite.dense import nature_features

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_ACTIONS, _ATOMS = 6, 51


class ActorCritic(nn.Module):
    """A Gaussian policy and a value, each on features of their own or, with ``shared``, on common ones.

    ``inputs`` 0 means screens (batch, 4, 84, 84), else rows of so many numbers through two layers of ``width``.
    """

    def __init__(self, inputs: int, width: int, actions: int, shared: bool) -> None:
        super().__init__()
        features = nature_features if inputs == 0 else _tanh_layers(inputs, width)
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


def _tanh_layers(inputs: int, width: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())


def log_probability(actions: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Of actions (batch, n) under normal distributions, summed over n."""
    variance = deviation**2
    return (-((actions - mean) ** 2) / (2 * variance) - deviation.log() - _HALF_LOG_2PI).sum(1)


class Act(nn.Module):
    """A step of a rollout of proximal policy optimisation: actions, values and log probabilities."""

    def __init__(self, inputs: int, width: int, actions: int, shared: bool) -> None:
        super().__init__()
        self.policy = ActorCritic(inputs, width, actions, shared)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, deviation, values = self.policy.think(observations)
        actions = torch.normal(mean, deviation)
        return actions, values, log_probability(actions, mean, deviation)


class Learn(nn.Module):
    """A minibatch of an update, down to the loss of Stable-Baselines3. ``logged``: how many scalars are read."""

    def __init__(self, inputs: int, width: int, actions: int, shared: bool, logged: int = 0) -> None:
        super().__init__()
        self.policy = ActorCritic(inputs, width, actions, shared)
        self.logged = logged

    def forward(
        self, observations: Tensor, actions: Tensor, log_probabilities: Tensor, advantages: Tensor, returns: Tensor
    ) -> Tensor:
        mean, deviation, values = self.policy.think(observations)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = torch.exp(log_probability(actions, mean, deviation) - log_probabilities)
        clipped = torch.clamp(ratio, 0.8, 1.2)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        value_loss = F.mse_loss(returns, values.flatten())
        entropy = -(0.5 + _HALF_LOG_2PI + deviation.log()).sum(1).mean()
        for scalar in (policy_loss, value_loss, entropy, ratio.mean())[: self.logged]:
            scalar.item()
        return policy_loss + 0.5 * value_loss + 0.01 * entropy


class NoisyLinear(nn.Module):
    """A linear layer whose weights have learnt noise while it trains."""

    weight_noise: Tensor
    bias_noise: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.weight_deviation = nn.Parameter(torch.full((outputs, inputs), bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.bias_deviation = nn.Parameter(torch.full((outputs,), bound))
        self.register_buffer("weight_noise", torch.randn(outputs, inputs))
        self.register_buffer("bias_noise", torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + self.weight_deviation * self.weight_noise
        return F.linear(x, weight, self.bias + self.bias_deviation * self.bias_noise)

    def draw(self) -> None:
        """Draw new noise, as the outer product of two vectors."""
        outputs, inputs = self.weight.shape
        seen, said = (
            noise.sign().mul_(noise.abs().sqrt_())
            for noise in (torch.randn(n, device=self.weight.device) for n in (inputs, outputs))
        )
        self.weight_noise.copy_(said.ger(seen))
        self.bias_noise.copy_(said)


class Rainbow(nn.Module):
    """Screens (batch, 4, 84, 84) to log probabilities of returns (batch, actions, atoms)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nature_features()[:7]
        self.value = nn.Sequential(NoisyLinear(3136, 512), nn.ReLU(), NoisyLinear(512, _ATOMS))
        self.advantage = nn.Sequential(NoisyLinear(3136, 512), nn.ReLU(), NoisyLinear(512, _ACTIONS * _ATOMS))

    def forward(self, screens: Tensor) -> Tensor:
        seen = self.convolutions(screens)
        value = self.value(seen).view(-1, 1, _ATOMS)
        advantage = self.advantage(seen).view(-1, _ACTIONS, _ATOMS)
        return F.log_softmax(value + advantage - advantage.mean(1, keepdim=True), dim=2)

    def draw(self) -> None:
        """Draw the noise of every layer anew."""
        for layer in self.modules():
            if isinstance(layer, NoisyLinear):
                layer.draw()


class LearnRainbow(nn.Module):
    """Double Q-learning of distributions from a minibatch, down to its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.online = Rainbow()
        self.target = Rainbow().requires_grad_(False)

    def forward(self, screens: Tensor, actions: Tensor, rewards: Tensor, following: Tensor) -> Tensor:
        self.online.draw()
        rows = torch.arange(len(screens), device=screens.device)
        log_probabilities = self.online(screens)[rows, actions]
        with torch.no_grad():
            support = torch.linspace(-10.0, 10.0, _ATOMS, device=screens.device)
            best = (support * self.online(following).exp()).sum(2).argmax(1)
            self.target.draw()
            probabilities = self.target(following).exp()[rows, best]
            moved = (rewards.unsqueeze(1) + 0.99 * support).clamp(-10.0, 10.0)
            place = (moved + 10.0) / (20.0 / (_ATOMS - 1))
            lower, upper = place.floor().long(), place.ceil().long()
            projected = torch.zeros_like(probabilities)
            projected.scatter_add_(1, lower, probabilities * (upper - place))
            projected.scatter_add_(1, upper, probabilities * (place - lower))
        return -(projected * log_probabilities).sum(1).mean()
