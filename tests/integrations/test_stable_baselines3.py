"""Stable-Baselines3's algorithms learn where placer says, and an iteration is priced from its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv

from placer.integrations.stable_baselines3 import choose


class Unused(gym.Env[Any, Any]):
    """Has spaces; whoever resets or steps it fails."""

    def __init__(self, observations: Any, actions: Any) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, **kwargs: Any) -> Any:
        raise AssertionError("the environment was reset")

    def step(self, action: Any) -> Any:
        raise AssertionError("the environment was stepped")


VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (84, 84, 4), np.uint8)
TWO = spaces.Discrete(2)


@pytest.mark.parametrize("algorithm", [PPO, A2C, DQN, SAC, TD3])
def test_small_policies_stay_on_the_cpu(algorithm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path))  # not calibrated: both devices are estimates
    env = Unused(VECTOR, VECTOR if algorithm in (SAC, TD3) else TWO)
    options = {"policy_kwargs": {"net_arch": [32, 32]}}
    if algorithm in (SAC, TD3):
        options["batch_size"] = 16  # type: ignore[assignment]
    answer = choose(algorithm, "MlpPolicy", env, what_if="T4", **options)
    assert answer.device == "cpu"
    assert set(answer.provenance.values()) == {"published"}
    for name, seconds in answer.seconds.items():
        assert seconds == pytest.approx(sum(part.count * part.seconds[name] for part in answer.parts))
    assert "an iteration" in str(answer)


def test_a_large_network_of_many_environments_goes_to_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_HOME", str(tmp_path))
    env = DummyVecEnv([lambda: Unused(IMAGE, TWO)] * 8)
    answer = choose(PPO, "CnnPolicy", env, n_steps=32, batch_size=128, what_if="T4")
    assert answer.device != "cpu"
    assert {part.name: part.count for part in answer.parts} == {"policy step": 32, "last value": 1, "update": 20}


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_observations_in_a_dictionary(algorithm: Any) -> None:
    env = Unused(spaces.Dict({"vector": VECTOR, "number": spaces.Discrete(3)}), TWO)
    assert choose(algorithm, "MultiInputPolicy", env, batch_size=32).device == "cpu"


def test_what_follows_is_as_without_it() -> None:
    def weights(ask: bool) -> torch.Tensor:
        torch.manual_seed(1)
        options: dict[str, Any] = {"n_steps": 16, "policy_kwargs": {}}
        if ask:
            choose(A2C, "MlpPolicy", "CartPole-v1", **options)
            assert options["policy_kwargs"] == {}
        model = A2C("MlpPolicy", "CartPole-v1", device="cpu", seed=None, **options)
        return torch.nn.utils.parameters_to_vector(model.policy.parameters()).detach()

    assert torch.equal(weights(ask=True), weights(ask=False))


def test_delayed_updates_and_episodes() -> None:
    env = Unused(VECTOR, VECTOR)
    answer = choose(
        TD3, "MlpPolicy", env, train_freq=(1, "episode"), gradient_steps=-1, policy_delay=4, batch_size=16
    )
    counts = {part.name: part.count for part in answer.parts}
    assert counts == {"policy step": 1, "update of the critics": 0.75, "update": 0.25}
    with pytest.raises(ValueError, match="train_freq in episodes needs gradient_steps=-1"):
        choose(TD3, "MlpPolicy", env, train_freq=(1, "episode"), gradient_steps=3)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="must be the class PPO, A2C, DQN, SAC or TD3, not an object of str"):
        choose("PPO", "MlpPolicy", "CartPole-v1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="device is what choose answers"):
        choose(PPO, "MlpPolicy", "CartPole-v1", device="cpu")
    with pytest.raises(ValueError, match="total_timesteps must be at least 1, not 0"):
        choose(PPO, "MlpPolicy", "CartPole-v1", total_timesteps=0)
