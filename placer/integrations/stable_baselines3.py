"""Stable-Baselines3: ``PPO(..., device=...)``, and so A2C, DQN, SAC and TD3.

>>> answer = choose(PPO, "MlpPolicy", env)
>>> model = PPO("MlpPolicy", env, device=answer.device)
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import TrainFrequencyUnit

import placer
from placer.decision import same_randomness
from placer.integrations.parts import IterationAnswer, Part, combined

#: What ``choose`` can take apart; their subclasses (DDPG is one) too.
_ALGORITHMS = (PPO, A2C, DQN, SAC, TD3)
#: Set for the copy that is priced: it is silent, seeds nothing and stays on the CPU.
_QUIET = {"device": "cpu", "verbose": 0, "seed": None, "tensorboard_log": None}


def choose(
    algorithm: type[Any],
    policy: Any,
    env: Any,
    *,
    total_timesteps: int | None = None,
    what_if: str | os.PathLike[str] | None = None,
    **kwargs: Any,
) -> IterationAnswer:
    """Predict where ``algorithm(policy, env, **kwargs)`` learns fastest; ``env`` is neither reset nor stepped.

    One iteration is what ``learn`` repeats: the policy acts in the environments, then the networks are updated. The
    environments' own time is the same on every device and left out.

    Args:
        algorithm: the class PPO, A2C, DQN, SAC or TD3, or a subclass.
        policy: as the algorithm takes it, ``"MlpPolicy"`` for one.
        env: as the algorithm takes it.
        total_timesteps: that of ``learn``; the time to start a GPU is spread over them. None: a long run.
        what_if: another accelerator to compare, as in ``placer.explain``. If that is the faster one, ``device`` is its
            name, which torch does not take.
        kwargs: the algorithm's other arguments; ``device`` is the answer and not among them.

    Raises:
        ValueError, TypeError: a wrong argument.
        PlacerError: no usable profile, or no trace of the steps.
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, _ALGORITHMS)):
        raise TypeError(f"algorithm must be the class PPO, A2C, DQN, SAC or TD3, not {_named(algorithm)}")
    if "device" in kwargs:
        raise TypeError("device is what choose answers: leave it out, and give answer.device to the algorithm")
    if env is None:
        raise ValueError("env must be an environment or the name of one: its spaces shape the networks")
    if total_timesteps is not None and total_timesteps < 1:
        raise ValueError(f"total_timesteps must be at least 1, not {total_timesteps}")
    with same_randomness(()):  # the weights that the algorithm will draw stay the same
        own = _built(algorithm, policy, env, kwargs)
        steps, parts = _on_policy(own) if isinstance(own, OnPolicyAlgorithm) else _off_policy(own)
        priced = [
            Part(name, count, placer.explain(step, example=(example,), modules=own.policy, what_if=what_if))
            for name, count, step, example in parts
            if count
        ]
    iterations = None if total_timesteps is None else math.ceil(total_timesteps / (steps * own.n_envs))
    return combined(priced, iterations)


#: Name, how often in an iteration, a step function, and the tensors it takes.
_Step = tuple[str, float, Callable[[Any], None], Any]


def _built(algorithm: type[Any], policy: Any, env: Any, kwargs: dict[str, Any]) -> Any:
    """The real algorithm on the CPU, with a replay buffer of just one batch."""
    # Algorithms write into policy_kwargs.
    arguments = {**kwargs, **_QUIET, "policy_kwargs": dict(kwargs.get("policy_kwargs") or {})}
    if not issubclass(algorithm, OnPolicyAlgorithm):
        # Buffers that look for episodes give batches of the same shapes as the default one.
        arguments |= {"buffer_size": 1, "replay_buffer_class": None, "replay_buffer_kwargs": None}
        arguments |= {"optimize_memory_usage": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the algorithm that is trained warns of the same
        own = algorithm(policy, env, **arguments)
    own.set_logger(Logger(None, []))
    if own.use_sde:
        own.policy.reset_noise(own.n_envs)
    own.policy.set_training_mode(False)
    return own


def _on_policy(own: Any) -> tuple[int, list[_Step]]:
    """The steps in each environment in an iteration of PPO or A2C, and its parts."""
    collected = own.n_steps * own.n_envs
    rows = min(own.batch_size, collected) if isinstance(own, PPO) else collected
    updates = own.n_epochs * math.ceil(collected / rows) if isinstance(own, PPO) else 1
    buffer = own.rollout_buffer_class(
        rows, own.observation_space, own.action_space, device="cpu", n_envs=1, **own.rollout_buffer_kwargs
    )
    buffer.full = True
    batch = next(iter(buffer.get(rows)))
    if isinstance(own, PPO):
        own.n_epochs, own.target_kl = 1, None  # one minibatch, and no early end

    def act(observation: Any) -> None:
        with torch.no_grad():
            results = own.policy(observation)
        for result in results:  # actions for the environments; values and their logarithms for the buffer
            result.cpu().numpy()

    def value(observation: Any) -> None:
        with torch.no_grad():
            own.policy.predict_values(observation).cpu().numpy()

    def update(given: Any) -> None:
        own.rollout_buffer = _OneBatch(given)
        own.train()

    seen = _observation(own)
    parts: list[_Step] = [
        ("policy step", own.n_steps, act, seen),
        ("last value", 1, value, seen),
        ("update", updates, update, batch),
    ]
    return own.n_steps, parts


def _off_policy(own: Any) -> tuple[int, list[_Step]]:
    """The steps in each environment in an iteration of DQN, SAC or TD3 once it learns, and its parts."""
    steps, updates = own.train_freq.frequency, own.gradient_steps
    if own.train_freq.unit == TrainFrequencyUnit.EPISODE:
        if updates >= 0:
            raise ValueError(
                "how long an episode is cannot be known, so train_freq in episodes needs gradient_steps=-1; "
                "or give train_freq in steps"
            )
        steps = 1  # as many updates as steps, however long the episode is
    updates = steps * own.n_envs if updates < 0 else updates
    own.replay_buffer.full = True
    batch = own.replay_buffer.sample(own.batch_size)
    given = tuple(part for part in batch if part is not None)

    def act(observation: Any) -> None:
        with torch.no_grad():
            own.policy._predict(observation).cpu().numpy()

    def update(number: int) -> Callable[[Any], None]:
        def step(tensors: Any) -> None:
            own.replay_buffer = _OneBatch(type(batch)(*tensors))
            own._n_updates = number
            own.train(gradient_steps=1, batch_size=own.batch_size)

        return step

    parts: list[_Step] = [("policy step", steps, act, _observation(own))]
    delay = own.policy_delay if isinstance(own, TD3) else 1
    if delay > 1:  # most updates leave the actor alone
        parts.append(("update of the critics", updates * (delay - 1) / delay, update(0), given))
    parts.append(("update", updates / delay, update(delay - 1), given))
    return steps, parts


class _OneBatch:
    """A buffer that gives one batch: ``train`` makes one update of it."""

    values = returns = np.zeros(2, np.float32)

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def get(self, batch_size: int | None = None) -> Iterator[Any]:
        yield self._batch

    def sample(self, batch_size: int, env: Any = None) -> Any:
        return self._batch


def _observation(own: Any) -> Any:
    """What the environments show the policy at once: a row of zeros for each."""

    def rows(space: Any) -> torch.Tensor:
        return torch.as_tensor(np.zeros((own.n_envs, *space.shape), space.dtype))

    space = own.observation_space
    return {name: rows(part) for name, part in space.items()} if isinstance(space, spaces.Dict) else rows(space)


def _named(algorithm: Any) -> str:
    return algorithm.__name__ if isinstance(algorithm, type) else f"an object of {type(algorithm).__name__}"
