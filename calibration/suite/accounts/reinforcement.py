"""Reinforcement learning: the policy's part of a rollout and of an update. The environments are not rebuilt."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from placer.calibration.suite.accounts import hosts
from placer.calibration.suite.accounts.account import Account, Part, Point
from placer.calibration.suite.accounts.ppo import Act, ActorCritic, Learn, rollout
from placer.calibration.suite.accounts.rainbow import LearnRainbow, Rainbow, transitions
from placer.calibration.suite.reference.supervised import own_loss

_SCREEN = (4, 84, 84)


def _perceptron(inputs: int, width: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())


def _nature() -> nn.Module:
    """Screens (batch, 4, 84, 84) to 512 features."""
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
    )  # fmt: skip


def _ppo(
    policy: Callable[[], ActorCritic], observation: tuple[int, ...], actions: int, *, seen: int, batch: int,
    acts: float, learns: float, reads: int = 0,
) -> tuple[Part, ...]:  # fmt: skip
    """``acts`` steps of a rollout with ``seen`` environments, and ``learns`` minibatches of ``batch``."""
    return (
        Part(lambda: Act(policy()), lambda: (torch.rand(seen, *observation),), "infer", count=acts),
        Part(
            lambda: Learn(policy(), reads=reads), lambda: tuple(rollout(batch, observation, actions)), "train",
            loss=own_loss, data="device", count=learns,
        ),
    )  # fmt: skip


def _pendulum() -> tuple[Part, ...]:
    """2,500 rollouts of one step in 4 environments; after each, ten epochs of two minibatches of 2."""
    return _ppo(
        lambda: ActorCritic(_perceptron(3, 64), 64, 1, shared=False), (3,), 1, seen=4, batch=2, acts=2 * 2_500,
        learns=20 * 2_500, reads=4,
    )  # fmt: skip


def _find_the_target() -> tuple[Part, ...]:
    """50,000 steps of one agent; after each 10,240, three epochs of ten minibatches."""
    return _ppo(
        lambda: ActorCritic(_perceptron(20, 128), 128, 2, shared=True), (20,), 2, seen=1, batch=1024, acts=50_000,
        learns=30 * 50_000 / 10_240,
    )  # fmt: skip


def _pong() -> tuple[Part, ...]:
    """128 steps of a rollout in 8 environments; then four epochs of four minibatches."""
    return _ppo(
        lambda: ActorCritic(_nature, 512, 6, shared=True), _SCREEN, 6, seen=8, batch=256, acts=128, learns=16,
    )  # fmt: skip


def _rainbow() -> tuple[Part, ...]:
    """Four steps of the game, and what is learnt after them from a minibatch of 32."""
    screen: Callable[[], tuple[Tensor]] = lambda: (torch.rand(1, *_SCREEN),)  # noqa: E731
    return (
        Part(Rainbow, screen, "infer", count=4),
        Part(LearnRainbow, lambda: transitions(32), "train", loss=own_loss, data="device"),
    )


ACCOUNTS = (
    Account(
        "sb3-ppo-pendulum-tiny", "Apple M1", hosts.APPLE_M1, "which of Apple's chips",
        "Stable-Baselines3's loop and the environment.",
        (Point("10k steps", _pendulum()),),
    ),
    Account(
        "ml-agents-3004", "GTX 1070", hosts.DESKTOP_2017, "the CPU, observation (20) and action (2), one agent",
        "The Unity environment, most of the time on either side; TensorFlow's sessions.",
        (Point("50k steps", _find_the_target()),),
    ),
    Account(
        "rainbow-71", "RTX 2080 SUPER", hosts.I5_9600, "",
        "The Atari emulator and the replay memory.",
        (
            Point("RTX2080S / i5-9600", _rainbow()),
            Point("GTX1080Ti / i7-3820", _rainbow(), gpu="GTX 1080 Ti", cpu=hosts.I7_3820),
        ),
    ),
    Account(
        "tf-directml-351", "GT 1030", hosts.I7_8550U, "GT 1030 for the MX150, which has the same chip",
        "The Atari emulator.",
        (Point("fps (CPU source: >200)", _pong()),),
    ),
)  # fmt: skip
