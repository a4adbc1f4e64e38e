"""Reinforcement-learning policies: tiny networks asked for one action at a time, and trained on larger batches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from placer.calibration.suite.entry import Entry
from placer.calibration.suite.losses import actor_critic, mean_squared
from placer.calibration.suite.mlp import mlp, rows


class ActorCritic(nn.Module):
    """Separate 64-64 towers for policy and value, as PPO's default for vectors: (batch, 8) to logits and values."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = mlp((8, 64, 64, 4), nn.Tanh)
        self.critic = mlp((8, 64, 64, 1), nn.Tanh)

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(observation), self.critic(observation)


class NatureCnn(nn.Module):
    """The convolutional body of DQN on Atari: uint8 frames (batch, 4, 84, 84) to values of 6 actions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6),
        )  # fmt: skip

    def forward(self, frames: Tensor) -> Tensor:
        out: Tensor = self.body(frames.float() / 255.0)
        return out


class TwinCritic(nn.Module):
    """The two value networks of SAC and TD3: (batch, 17) observations and (batch, 6) actions to two values."""

    def __init__(self) -> None:
        super().__init__()
        self.first = mlp((23, 256, 256, 1))
        self.second = mlp((23, 256, 256, 1))

    def forward(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([observation, action], dim=1)
        return self.first(both), self.second(both)


ENTRIES = (
    Entry(
        "actor_critic", "policy", ActorCritic, rows(8), (1, 64, 256), loss=actor_critic,
        suites=frozenset({"quick", "full"}),
    ),
    Entry("dqn_vector", "policy", lambda: mlp((4, 120, 84, 2)), rows(4), (1, 128), loss=mean_squared),
    Entry(
        "dqn_atari", "policy", NatureCnn,
        lambda n: torch.randint(0, 256, (n, 4, 84, 84), dtype=torch.uint8), (1, 32), loss=mean_squared,
    ),
    Entry(
        "twin_critic", "policy", TwinCritic, lambda n: (torch.randn(n, 17), torch.randn(n, 6)), (1, 256),
    ),
)  # fmt: skip
