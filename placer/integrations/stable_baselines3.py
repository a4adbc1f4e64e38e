"""Stable-Baselines3: all arguments of PPO, and so of A2C, DQN, SAC and TD3, with the answer among them.

Examples:
    >>> model = PPO("MlpPolicy", env, **algorithm_args(PPO, "MlpPolicy", env, n_steps=256))
"""

from __future__ import annotations

import contextlib
import copy
import math
import warnings
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import ConvertCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv

import placer
from placer.integrations.loops import choose_job, keep, whole
from placer.workload import same_randomness

#: What ``job`` can take apart; their subclasses (DDPG is one) too.
_ALGORITHMS = (PPO, A2C, DQN, SAC, TD3)
#: Set for the copy that is priced: it is silent, seeds nothing and stays on the CPU.
_QUIET = {"device": "cpu", "verbose": 0, "seed": None, "tensorboard_log": None}
#: A replay buffer of one row. Buffers that look for episodes give batches of the same shapes as the default one.
_ONE_ROW = {
    "buffer_size": 1, "replay_buffer_class": None, "replay_buffer_kwargs": None, "optimize_memory_usage": False,
}  # fmt: skip


def algorithm_args(
    algorithm: type[Any],
    policy: Any,
    env: Any,
    *,
    total_timesteps: int | None = None,
    env_seconds: float | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """``kwargs`` for ``algorithm(policy, env, **kwargs)``, with the ``device`` where it learns fastest.

    What is priced is the ``job`` of the same arguments; the decision is an INFO record of the logger ``placer``. A
    ``device`` of your own other than ``"auto"`` stays, and nothing is predicted. Of what ``job`` cannot price there is
    one PlacerWarning, and the default rule decides.
    """
    if kwargs.get("device", "auto") != "auto":
        keep(f"device={str(kwargs['device'])!r}")
        return kwargs
    options = {name: value for name, value in kwargs.items() if name != "device"}
    learning = partial(job, algorithm, policy, env, total_timesteps=total_timesteps, env_seconds=env_seconds, **options)
    return {**options, "device": choose_job(learning, []).device}


def job(
    algorithm: type[Any],
    policy: Any,
    env: Any,
    *,
    total_timesteps: int | None = None,
    env_seconds: float | None = None,
    **kwargs: Any,
) -> placer.Job:
    """What ``learn`` repeats: the policy acts in the environments, then the networks are updated.

    Each step is the library's own code, with its callbacks and buffers: ``collect_rollouts`` for one step, and
    ``train`` for one update. ``env`` is neither reset nor stepped.

    Args:
        algorithm: the class PPO, A2C, DQN, SAC or TD3, or a subclass.
        policy: as the algorithm takes it, ``"MlpPolicy"`` for one, and so is ``env``.
        total_timesteps: that of ``learn``; the time to start a GPU is spread over them. None: a long run.
        env_seconds: seconds that a step of all environments takes. None: their time, which is the same on every
            device, is left out.
        kwargs: the algorithm's other arguments; ``device`` is the answer and not among them.

    Raises:
        ValueError, TypeError: a wrong argument.
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, _ALGORITHMS)):
        named = algorithm.__name__ if isinstance(algorithm, type) else f"an object of {type(algorithm).__name__}"
        raise TypeError(f"algorithm must be the class PPO, A2C, DQN, SAC or TD3, not {named}")
    if "device" in kwargs:
        raise TypeError("device is what the job is compared on: leave it out")
    if env is None:
        raise ValueError("env must be an environment or the name of one: its spaces shape the networks")
    with same_randomness():  # the weights that the algorithm will draw stay the same
        learner = _built(algorithm, policy, env, kwargs)
        parts_of = _on_policy if isinstance(learner, OnPolicyAlgorithm) else _off_policy
        steps, parts = parts_of(learner, env_seconds)
    if total_timesteps is None:
        return placer.Job(parts)
    timesteps = whole("total_timesteps", total_timesteps)
    return placer.Job(parts, repeats=math.ceil(timesteps / (steps * learner.n_envs)))


def _built(algorithm: type[Any], policy: Any, env: Any, kwargs: dict[str, Any]) -> Any:
    """The real algorithm on the CPU among environments that answer zeros, ready to learn."""
    # Algorithms write into policy_kwargs.
    arguments = {**kwargs, **_QUIET, "policy_kwargs": dict(kwargs.get("policy_kwargs") or {})}
    if not issubclass(algorithm, OnPolicyAlgorithm):
        arguments |= _ONE_ROW
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the algorithm that is trained warns of the same
        learner = algorithm(policy, env, **arguments)
    learner.set_logger(Logger(None, []))
    learner.set_env(_Zeros(learner.n_envs, learner.observation_space, learner.action_space))
    learner.learn(-1)  # prepares for learning, and takes no step
    return learner


def _on_policy(learner: Any, env_seconds: float | None) -> tuple[int, list[placer.Part]]:
    """The steps in each environment in an iteration of PPO or A2C, and what it is made of."""
    collected = learner.n_steps * learner.n_envs
    several = isinstance(learner, PPO)  # A2C updates once
    rows = min(learner.batch_size, collected) if several else collected
    updates = learner.n_epochs * math.ceil(collected / rows) if several else 1
    rollout, callback = learner.rollout_buffer, _callback(learner)
    # An update trains on a buffer of one batch, in one epoch.
    learner.rollout_buffer = batch = learner.rollout_buffer_class(
        rows, learner.observation_space, learner.action_space, device="cpu", n_envs=1, **learner.rollout_buffer_kwargs
    )
    batch.full = True
    if several:
        learner.n_epochs, learner.target_kl = 1, None
    learner.policy.set_training_mode = _stay  # ``train`` enters it once for many updates
    add = rollout.add

    def add_and_end(*row: Any) -> None:  # before what comes once a rollout
        add(*row)
        raise _StepIsOver

    rollout.add = add_and_end

    def act(observation: Any) -> None:
        with contextlib.suppress(_StepIsOver):
            learner.collect_rollouts(learner.env, callback, rollout, n_rollout_steps=1)

    def value(observation: Any) -> None:
        observed = learner.env.reset()
        with torch.no_grad():
            values = learner.policy.predict_values(obs_as_tensor(observed, learner.device))
        rollout.compute_returns_and_advantage(last_values=values, dones=np.zeros(learner.n_envs, bool))

    def update(samples: Any) -> None:
        learner.train()

    observations, samples = (_tensors(learner.env.reset()),), (next(iter(batch.get(rows))),)
    return learner.n_steps, [
        placer.Part(
            "policy step", act, observations, count=learner.n_steps, loading=env_seconds, modules=learner.policy
        ),
        placer.Part("last value", value, observations, modules=learner.policy),
        placer.Part("update", update, samples, count=updates, modules=learner.policy),
    ]


def _stay(mode: bool) -> None: ...


def _off_policy(learner: Any, env_seconds: float | None) -> tuple[int, list[placer.Part]]:
    """The same of DQN, SAC or TD3, once it learns."""
    steps, updates = learner.train_freq.frequency, learner.gradient_steps
    if learner.train_freq.unit == TrainFrequencyUnit.EPISODE:
        if updates >= 0:
            raise ValueError(
                "how long an episode is cannot be known, so train_freq in episodes needs gradient_steps=-1; "
                "or give train_freq in steps"
            )
        steps = 1  # as many updates as steps, however long the episode is
    updates = steps * learner.n_envs if updates < 0 else updates
    noise, callback = copy.deepcopy(learner.action_noise), _callback(learner)
    one_step = TrainFreq(1, TrainFrequencyUnit.STEP)
    together = learner.policy_delay if isinstance(learner, TD3) else 1  # most updates of TD3 leave the actor alone
    learner.replay_buffer.full = True

    def act(observation: Any) -> None:
        if isinstance(learner, DQN):
            learner.exploration_rate = 0.0  # else the action is drawn, not asked of the policy
        learner.collect_rollouts(learner.env, callback, one_step, learner.replay_buffer, action_noise=noise)

    def update(samples: Any) -> None:
        learner._n_updates = 0
        learner.train(gradient_steps=together, batch_size=learner.batch_size)

    samples = tuple(part for part in learner.replay_buffer.sample(learner.batch_size) if part is not None)
    observations, count = (_tensors(learner.env.reset()),), updates / together
    parts = [placer.Part("policy step", act, observations, count=steps, loading=env_seconds, modules=learner.policy)]
    if count:
        parts.append(placer.Part("update", update, (samples,), count=count, modules=learner.policy))
    return steps, parts


def _callback(learner: Any) -> Any:
    """The callback that ``learn`` calls where it was given none."""
    callback = ConvertCallback(None)
    callback.init_callback(learner)
    return callback


class _StepIsOver(Exception):
    """Ends ``collect_rollouts`` after one step."""


class _Zeros(VecEnv):
    """Environments that show zeros, whatever is done."""

    def reset(self) -> Any:
        return _zeros(self.observation_space, self.num_envs)

    def step(self, actions: Any) -> Any:
        number = self.num_envs
        return self.reset(), np.zeros(number, np.float32), np.zeros(number, bool), [{} for _ in range(number)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def step_async(self, actions: Any) -> None: ...
    def step_wait(self) -> Any: ...
    def close(self) -> None: ...
    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None: ...
    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return []


def _zeros(space: Any, number: int) -> Any:
    """An array of zeros for each of ``number`` environments, or a dictionary of them."""
    if isinstance(space, spaces.Dict):
        return {name: _zeros(part, number) for name, part in space.items()}
    return np.zeros((number, *space.shape), space.dtype)


def _tensors(arrays: Any) -> Any:
    return {k: torch.as_tensor(v) for k, v in arrays.items()} if isinstance(arrays, dict) else torch.as_tensor(arrays)
