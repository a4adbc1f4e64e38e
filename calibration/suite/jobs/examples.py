"""Jobs for the documentation: what reinforcement learning repeats, and what image classification repeats."""

from __future__ import annotations

from torch import nn

from placer.workload import Job, Part


def rollouts() -> Job:
    """A small policy acts in eight environments for 2,048 steps, then learns from large batches of what it saw."""
    policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    return Job([
        Part("acting", policy, (8, 8), count=2048, mode="infer"),
        Part("learning", policy, (4096, 8), count=40, mode="train"),
    ])  # fmt: skip


def images() -> Job:
    """An epoch on 60,000 images of 32 x 32 pixels, then the evaluation on 5,000."""
    network = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 64, 10),
    )  # fmt: skip
    return Job([
        Part("training", network, (64, 3, 32, 32), count=938, mode="train"),
        Part("evaluation", network, (128, 3, 32, 32), count=40, mode="infer"),
    ], repeats=10)  # fmt: skip
