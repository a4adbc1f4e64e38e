"""The steps that an iteration of a Stable-Baselines3 algorithm is made of: the library's own code, once.

The policy acts through the real ``collect_rollouts``, with its callbacks and its buffer, and learns through the real
``train``. Only the environments are replaced, by one that answers zeros.
"""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, TD3
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv

from placer.integrations.modes import quick_switch

#: Set for the copy that is priced: it is silent, seeds nothing and stays on the CPU.
_QUIET = {"device": "cpu", "verbose": 0, "seed": None, "tensorboard_log": None}
_ONE_STEP = TrainFreq(1, TrainFrequencyUnit.STEP)
#: Steps of an environment that are timed together, at most, and about how many seconds they may take with policy steps.
_BLOCK, _BLOCK_SECONDS = 16, 0.02


@dataclass(frozen=True)
class Step:
    """A step function, the tensors it takes, and how often it runs in an iteration; ``acts`` in the environments."""

    name: str
    count: float
    run: Callable[[Any], None]
    example: Any
    acts: bool = False


def built(algorithm: type[Any], policy: Any, env: Any, kwargs: dict[str, Any]) -> Any:
    """The real algorithm on the CPU, with a replay buffer of one row, ready to collect and to learn."""
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
    own._last_obs = own._last_original_obs = _rows(own.observation_space, own.n_envs)
    own._last_episode_starts = np.zeros(own.n_envs, bool)
    own.ep_info_buffer, own.ep_success_buffer = deque(maxlen=1), deque(maxlen=1)
    own._vec_normalize_env = None
    own._total_timesteps = 1
    return own


def steps_of(own: Any) -> tuple[int, list[Step]]:
    """The steps in each environment in an iteration, and what it is made of."""
    return _on_policy(own) if isinstance(own, OnPolicyAlgorithm) else _off_policy(own)


def environment_seconds(own: Any, act: Step, *, ours: bool, limit_seconds: float = 0.3) -> float:
    """Seconds that one step of all environments, with random actions, adds to a policy step.

    Their code and the policy's push each other out of the caches, so a small environment costs several times what it
    takes alone. This thread's time counts, which other programs on the machine leave alone, or, of environments that
    wait for something, the time that passes. ``ours`` may be stepped, else a copy is.

    Raises:
        ValueError: environments that cannot be copied.
    """
    try:
        env = own.env if ours else copy.deepcopy(own.env)
        space = copy.deepcopy(own.action_space)
    except Exception as error:  # whatever an environment of the user holds may refuse
        raise ValueError(
            f"the environment cannot be copied to measure it ({type(error).__name__}: {error}); "
            "give env_seconds as the seconds of one step of all environments"
        ) from error
    env.reset()
    start = time.perf_counter()
    act.run(act.example)
    env.step(np.array([space.sample() for _ in range(own.n_envs)]))
    block = min(max(int(_BLOCK_SECONDS / (time.perf_counter() - start)), 1), _BLOCK)
    without: list[float] = []
    both: list[float] = []
    passed: list[float] = []
    began = time.perf_counter()
    while not both or time.perf_counter() - began < limit_seconds:
        actions = [np.array([space.sample() for _ in range(own.n_envs)]) for _ in range(block)]
        start = time.thread_time()
        for _ in actions:
            act.run(act.example)
        without.append(time.thread_time() - start)
        start = time.thread_time()
        for action in actions:
            act.run(act.example)
            at = time.perf_counter()
            env.step(action)
            passed.append(time.perf_counter() - at)
        both.append(time.thread_time() - start)
    added = (statistics.median(both) - statistics.median(without)) / block
    return max(added, statistics.median(passed))  # where the policy takes long, a difference is uncertain


def _on_policy(own: Any) -> tuple[int, list[Step]]:
    """An iteration of PPO or A2C."""
    collected = own.n_steps * own.n_envs
    several = isinstance(own, PPO)  # A2C updates once
    rows = min(own.batch_size, collected) if several else collected
    updates = own.n_epochs * math.ceil(collected / rows) if several else 1
    rollout, env, callback = own.rollout_buffer, _Zeros(own), own._init_callback(None)
    batches = own.rollout_buffer_class(
        rows, own.observation_space, own.action_space, device="cpu", n_envs=1, **own.rollout_buffer_kwargs
    )
    batches.full = True
    given = next(iter(batches.get(rows)))
    if several:
        own.n_epochs, own.target_kl = 1, None
        _end_after(batches, "get")
    _end_after(rollout, "add")

    real = own.policy.set_training_mode
    quick = quick_switch(own.policy, real)

    def act(observation: Any) -> None:
        own.policy.set_training_mode = quick  # the walk through the modules comes once a rollout, and once a train
        with contextlib.suppress(_StepIsOver):
            own.collect_rollouts(env, callback, rollout, n_rollout_steps=1)

    def value(observation: Any) -> None:
        with torch.no_grad():
            values = own.policy.predict_values(obs_as_tensor(own._last_obs, own.device))
        rollout.compute_returns_and_advantage(last_values=values, dones=own._last_episode_starts)

    def update(batch: Any) -> None:
        own.policy.set_training_mode = quick if several else real
        own.rollout_buffer = batches
        with contextlib.suppress(_StepIsOver):
            own.train()

    seen = _tensors(own._last_obs)
    return own.n_steps, [
        Step("policy step", own.n_steps, act, seen, acts=True),
        Step("last value", 1, value, seen),
        Step("update", updates, update, given),
    ]


def _off_policy(own: Any) -> tuple[int, list[Step]]:
    """An iteration of DQN, SAC or TD3 once it learns."""
    steps, updates = own.train_freq.frequency, own.gradient_steps
    if own.train_freq.unit == TrainFrequencyUnit.EPISODE:
        if updates >= 0:
            raise ValueError(
                "how long an episode is cannot be known, so train_freq in episodes needs gradient_steps=-1; "
                "or give train_freq in steps"
            )
        steps = 1  # as many updates as steps, however long the episode is
    updates = steps * own.n_envs if updates < 0 else updates
    noise, env, callback = copy.deepcopy(own.action_noise), _Zeros(own), own._init_callback(None)
    own.replay_buffer.full = True
    given = tuple(part for part in own.replay_buffer.sample(own.batch_size) if part is not None)

    real = own.policy.set_training_mode
    quick = quick_switch(own.policy, real)

    def once_a_rollout(mode: bool) -> None:
        quick(mode)
        own.policy.set_training_mode = real

    def act(observation: Any) -> None:
        # The loop walks through the modules once, then so does each prediction.
        own.policy.set_training_mode = real if steps == 1 else once_a_rollout
        if isinstance(own, DQN):
            own.exploration_rate = 0.0  # else the action is drawn, not asked of the policy
        own.collect_rollouts(env, callback, _ONE_STEP, own.replay_buffer, action_noise=noise)

    def update(number: int) -> Callable[[Any], None]:
        def step(tensors: Any) -> None:
            own.policy.set_training_mode = real if updates == 1 else quick
            own._n_updates = number
            own.train(gradient_steps=1, batch_size=own.batch_size)

        return step

    parts = [Step("policy step", steps, act, _tensors(own._last_obs), acts=True)]
    delay = own.policy_delay if isinstance(own, TD3) else 1
    if delay > 1:  # most updates leave the actor alone
        parts.append(Step("update of the critics", updates * (delay - 1) / delay, update(0), given))
    parts.append(Step("update", updates / delay, update(delay - 1), given))
    return steps, parts


class _StepIsOver(Exception):
    """Ends ``collect_rollouts`` or ``train`` before what they do once for many steps."""


def _end_after(buffer: Any, method: str) -> None:
    """Let a buffer's ``add``, or the first batch of its ``get``, be the last thing that happens."""
    real = getattr(buffer, method)

    def add(*given: Any) -> None:
        real(*given)
        raise _StepIsOver

    def get(*given: Any) -> Iterator[Any]:
        yield next(real(*given))
        raise _StepIsOver

    setattr(buffer, method, add if method == "add" else get)


class _Zeros(VecEnv):
    """As many environments as the algorithm has; whatever is done, they show zeros."""

    def __init__(self, own: Any) -> None:
        super().__init__(own.n_envs, own.observation_space, own.action_space)
        rewards, dones = np.zeros(own.n_envs, np.float32), np.zeros(own.n_envs, bool)
        self._answer: Any = (own._last_obs, rewards, dones, [{} for _ in range(own.n_envs)])

    def step(self, actions: Any) -> Any:
        return self._answer

    def reset(self) -> Any:
        return self._answer[0]

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


def _rows(space: Any, number: int) -> Any:
    """An array of zeros for each of ``number`` environments, or a dictionary of them."""
    if isinstance(space, spaces.Dict):
        return {name: _rows(part, number) for name, part in space.items()}
    return np.zeros((number, *space.shape), space.dtype)


def _tensors(arrays: Any) -> Any:
    return {k: torch.as_tensor(v) for k, v in arrays.items()} if isinstance(arrays, dict) else torch.as_tensor(arrays)
