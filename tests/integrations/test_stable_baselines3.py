"""Stable-Baselines3's algorithms learn where placer says, and an iteration is priced from the library's own steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from collector import functions_entered

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv

import placer
from placer import machine, tracing
from placer.integrations.stable_baselines3 import _Zeros, algorithm_args, job

#: A calibrated CPU that ships with placer: winners do not depend on the machine that runs the tests.
HOST = "amd-epyc-avx512-2-core"
VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (84, 84, 4), np.uint8)
TWO = spaces.Discrete(2)


def small() -> dict[str, Any]:
    """A small network; algorithms write into what they are given."""
    return {"policy_kwargs": {"net_arch": [32, 32]}}


class Still(gym.Env[Any, Any]):
    """Has spaces and shows zeros; counts how often it was reset and stepped."""

    def __init__(self, observations: Any, actions: Any) -> None:
        self.observation_space, self.action_space = observations, actions
        self.used = 0

    def reset(self, **kwargs: Any) -> Any:
        self.used += 1
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), {}

    def step(self, action: Any) -> Any:
        self.used += 1
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), 0.0, False, False, {}


def counts(found: placer.Job) -> dict[str, float]:
    return {part.name: part.count for part in found.parts}


@pytest.mark.parametrize("algorithm", [PPO, A2C, DQN, SAC, TD3])
def test_small_policies_stay_on_the_cpu(algorithm: Any) -> None:
    options = {"batch_size": 16} if algorithm in (SAC, TD3) else {}
    env = Still(VECTOR, VECTOR if algorithm in (SAC, TD3) else TWO)
    found = placer.explain(job(algorithm, "MlpPolicy", env, **small(), **options), profile=HOST, what_if="T4")
    cpu, gpu = found.devices.values()
    assert found.decision.device == "cpu"
    assert gpu.step_seconds > 1.5 * cpu.step_seconds
    assert (cpu.provenance, gpu.provenance) == ("calibrated", "published")
    assert cpu.step_seconds == pytest.approx(sum(part.seconds("cpu") for part in found.parts))
    assert env.used == 0


def test_a_large_network_of_many_environments_goes_to_the_gpu() -> None:
    env = DummyVecEnv([lambda: Still(IMAGE, TWO)] * 8)
    found = job(PPO, "CnnPolicy", env, n_steps=32, batch_size=128)
    assert counts(found) == {"policy step": 32, "last value": 1, "update": 20}
    timed = job(PPO, "CnnPolicy", env, env_seconds=0.5)
    assert [part.workload.loading for part in timed.parts] == [placer.Loading(0.5), None, None]
    assert placer.explain(found, profile=HOST, what_if="T4").decision.device != "cpu"


@pytest.mark.parametrize("device", ["cpu", torch.device("cuda:1")])
def test_a_device_of_the_user_s_is_not_overruled(device: Any, told: Callable[[], list[str]]) -> None:
    assert algorithm_args(PPO, "MlpPolicy", "CartPole-v1", device=device) == {"device": device}
    assert told() == [f"device={str(device)!r} was given, so nothing is predicted"]


def test_an_algorithm_that_cannot_be_priced_follows_the_usual_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu",))
    own = {"train_freq": (1, "episode"), "gradient_steps": 3, "buffer_size": 10}
    with pytest.warns(placer.PlacerWarning, match="without a prediction: .*train_freq in episodes") as warned:
        given = algorithm_args(DQN, "MlpPolicy", "CartPole-v1", **own)
    assert len(warned) == 1
    assert given == {**own, "device": torch.device("cpu")}
    DQN("MlpPolicy", "CartPole-v1", **given)


@pytest.mark.parametrize(
    ("algorithm", "env", "options"),
    [
        (PPO, "CartPole-v1", {"n_steps": 32, "batch_size": 8, "n_epochs": 2}),
        (A2C, "CartPole-v1", {}),
        (DQN, "CartPole-v1", {"learning_starts": 0, "buffer_size": 100}),
        (SAC, "Pendulum-v1", {"learning_starts": 0, "buffer_size": 100, "gradient_steps": 2, "batch_size": 16}),
        (TD3, "Pendulum-v1", {"learning_starts": 0, "buffer_size": 100, "gradient_steps": 6, "batch_size": 16}),
    ],
)
def test_learning_does_what_is_priced(
    algorithm: Any, env: str, options: Any, told: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates of each optimizer and policy steps of a real iteration are those that the job counts."""
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu",))
    found = counts(job(algorithm, "MlpPolicy", env, **small(), **options))
    arguments = algorithm_args(algorithm, "MlpPolicy", env, device="auto", **options)
    assert arguments == {**options, "device": torch.device("cpu")}
    assert [said.partition(":")[0] for said in told()] == ["cpu"]
    model = algorithm("MlpPolicy", env, **small(), **arguments)
    learners = [model.actor, model.critic] if hasattr(model, "actor") else [model.policy]
    updates, acted = [0] * len(learners), [0]
    for number, learner in enumerate(learners):
        learner.optimizer.register_step_post_hook(lambda *_, n=number: updates.__setitem__(n, updates[n] + 1))
    actor = model.policy if algorithm in (PPO, A2C) else getattr(model, "actor", None) or model.q_net
    actor.register_forward_hook(lambda *_: acted.__setitem__(0, acted[0] + 1))
    # The first step of DQN's loop only fills its buffer.
    model.learn(options.get("n_steps", 1))
    delay = 2 if algorithm is TD3 else 1  # most updates of TD3 leave the actor alone
    assert (updates[0], updates[-1]) == (found["update"], delay * found["update"])
    if algorithm in (PPO, A2C):
        assert acted[0] == found["policy step"]


@pytest.mark.parametrize(("algorithm", "env"), [(PPO, "CartPole-v1"), (SAC, "Pendulum-v1")])
def test_the_library_s_own_python_is_counted(algorithm: Any, env: str) -> None:
    """Python functions that a real rollout enters for each step, beside those of its environments."""
    options = {"n_steps": 16, "batch_size": 16} if algorithm is PPO else {"learning_starts": 0}
    steps = 16 if algorithm is PPO else 1
    act = job(algorithm, "MlpPolicy", env, **small(), **options).part("policy step")
    model = algorithm("MlpPolicy", env, device="cpu", **small(), **options)
    _, callback = model._setup_learn(1000)
    still = _Zeros(model.n_envs, model.observation_space, model.action_space)
    given: tuple[Any, ...] = (
        (model.rollout_buffer, steps) if algorithm is PPO else (model.train_freq, model.replay_buffer)
    )
    model.collect_rollouts(still, callback, *given)  # imports are over
    entered = functions_entered(lambda: model.collect_rollouts(still, callback, *given)) / steps
    assert tracing.trace(act.workload).python_calls == pytest.approx(entered, rel=0.3)


def test_what_follows_is_as_without_it() -> None:
    def weights(ask: bool) -> torch.Tensor:
        torch.manual_seed(1)
        options: dict[str, Any] = {"n_steps": 16, "policy_kwargs": {}}
        if ask:
            placer.explain(job(A2C, "MlpPolicy", "CartPole-v1", **options), devices="cpu")
            assert options["policy_kwargs"] == {}
        model = A2C("MlpPolicy", "CartPole-v1", device="cpu", seed=None, **options)
        return torch.nn.utils.parameters_to_vector(model.policy.parameters()).detach()

    assert torch.equal(weights(ask=True), weights(ask=False))


def test_timesteps_may_be_written_with_an_exponent() -> None:
    assert job(A2C, "MlpPolicy", "CartPole-v1", total_timesteps=1e5).repeats == 20_000  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"total_timesteps must be a whole number of at least 1, not 2\.5"):
        job(A2C, "MlpPolicy", "CartPole-v1", total_timesteps=2.5)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"must be the class PPO, .*, not an object of str"):
        job("PPO", "MlpPolicy", "CartPole-v1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="device is what the job is compared on"):
        job(PPO, "MlpPolicy", "CartPole-v1", device="cpu")
    with pytest.raises(TypeError, match="what_if"):
        job(PPO, "MlpPolicy", "CartPole-v1", what_if="T4")
    with pytest.raises(ValueError, match="env must be an environment"):
        job(PPO, "MlpPolicy", None)
    with pytest.raises(ValueError, match="total_timesteps must be a whole number of at least 1, not 0"):
        job(PPO, "MlpPolicy", "CartPole-v1", total_timesteps=0)
