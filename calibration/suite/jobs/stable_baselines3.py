"""An iteration of Stable-Baselines3's PPO on CartPole: 256 policy steps, then 40 updates."""

from __future__ import annotations

import time
from collections.abc import Callable

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from placer.integrations.stable_baselines3 import job
from placer.workload import Job

ENV, STEPS = "CartPole-v1", 256


class Clock(BaseCallback):
    """Seconds from the first policy step to the end of the updates."""

    def _on_rollout_start(self) -> None:
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.seconds = time.perf_counter() - self.began


def build() -> tuple[Job, Callable[[], float]]:
    """The job, and what runs it once and returns its seconds."""
    model = PPO("MlpPolicy", ENV, n_steps=STEPS, batch_size=64, device="cpu")

    def run() -> float:
        clock = Clock()
        model.learn(STEPS, callback=clock, reset_num_timesteps=False)
        return clock.seconds

    return job(PPO, "MlpPolicy", ENV, env_seconds="measure", n_steps=STEPS, batch_size=64), run
