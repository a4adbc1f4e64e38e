"""Rainbow: the network that plays Atari games, and what it learns from a minibatch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ACTIONS, _ATOMS = 6, 51


class NoisyLinear(nn.Module):
    """A linear layer whose weights have learnt noise while it trains."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.weight_deviation = nn.Parameter(torch.full((outputs, inputs), bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.bias_deviation = nn.Parameter(torch.full((outputs,), bound))
        self.weight_noise: Tensor
        self.bias_noise: Tensor
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
        self.convolutions = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip
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
        batch = len(screens)
        self.online.draw()
        rows = torch.arange(batch, device=screens.device)
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
        loss: Tensor = -(projected * log_probabilities).sum(1).mean()
        return loss


def transitions(batch: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """An example of a minibatch: screens, actions, rewards, the screens that follow."""
    actions = torch.zeros(batch, dtype=torch.int64)
    return torch.rand(batch, 4, 84, 84), actions, torch.zeros(batch), torch.rand(batch, 4, 84, 84)
