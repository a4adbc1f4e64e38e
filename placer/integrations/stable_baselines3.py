"""Stable-Baselines3: ``PPO(..., device=...)``, and so A2C, DQN, SAC and TD3.

>>> placement = choose(PPO, "MlpPolicy", env)
>>> model = PPO("MlpPolicy", env, device=placement.device)
"""

from __future__ import annotations

import math
from typing import Any, cast

from stable_baselines3 import A2C, DQN, PPO, SAC, TD3

import placer
from placer.integrations import sb3_steps
from placer.workload import same_randomness

#: What ``job`` can take apart; their subclasses (DDPG is one) too.
_ALGORITHMS = (PPO, A2C, DQN, SAC, TD3)


def choose(
    algorithm: type[Any],
    policy: Any,
    env: Any,
    *,
    total_timesteps: int | None = None,
    env_seconds: float | str | None = None,
    devices: Any = None,
    profile: Any = None,
    **kwargs: Any,
) -> placer.JobPlacement:
    """Predict where ``algorithm(policy, env, **kwargs)`` learns fastest. Nothing is moved; arguments as for ``job``.

    ``devices`` and ``profile`` are those of ``placer.choose``; ``kwargs`` are the algorithm's other arguments.

    Raises:
        ValueError, TypeError: a wrong argument.
    """
    found = job(algorithm, policy, env, total_timesteps=total_timesteps, env_seconds=env_seconds, **kwargs)
    return cast(placer.JobPlacement, placer.choose(found, devices=devices, profile=profile, move=False))


def job(
    algorithm: type[Any],
    policy: Any,
    env: Any,
    *,
    total_timesteps: int | None = None,
    env_seconds: float | str | None = None,
    **kwargs: Any,
) -> placer.Job:
    """What ``learn`` repeats: the policy acts in the environments, then the networks are updated.

    Each step is the library's own code, with its callbacks and buffers. ``env`` is neither reset nor stepped.

    Args:
        algorithm: the class PPO, A2C, DQN, SAC or TD3, or a subclass.
        policy: as the algorithm takes it, ``"MlpPolicy"`` for one.
        env: as the algorithm takes it.
        total_timesteps: that of ``learn``; the time to start a GPU is spread over them. None: a long run.
        env_seconds: seconds that a step of all environments adds to a policy step; ``"measure"`` times a copy of them,
            in about 0.3 s. None: their time, which is the same on every device, is left out.
        kwargs: the algorithm's other arguments; ``device`` is the answer and not among them.

    Raises:
        ValueError, TypeError: a wrong argument, or environments that cannot be copied.
    """
    if not (isinstance(algorithm, type) and issubclass(algorithm, _ALGORITHMS)):
        raise TypeError(f"algorithm must be the class PPO, A2C, DQN, SAC or TD3, not {_named(algorithm)}")
    if "device" in kwargs:
        raise TypeError("device is what choose answers: leave it out, and give placement.device to the algorithm")
    if "what_if" in kwargs:
        raise TypeError("what_if is for placer.explain: placer.explain(job(...), what_if=...)")
    if env is None:
        raise ValueError("env must be an environment or the name of one: its spaces shape the networks")
    if total_timesteps is not None and total_timesteps < 1:
        raise ValueError(f"total_timesteps must be at least 1, not {total_timesteps}")
    if isinstance(env_seconds, str) and env_seconds != "measure":
        raise ValueError(f"env_seconds must be seconds, 'measure' or None, not {env_seconds!r}")
    with same_randomness():  # the weights that the algorithm will draw stay the same
        own = sb3_steps.built(algorithm, policy, env, kwargs)
        steps, parts = sb3_steps.steps_of(own)
        if isinstance(env_seconds, str):
            env_seconds = sb3_steps.environment_seconds(own, parts[0], ours=isinstance(env, str))
    loading = None if env_seconds is None else placer.Loading(env_seconds)
    repeats = None if total_timesteps is None else math.ceil(total_timesteps / (steps * own.n_envs))
    return placer.Job(
        [
            placer.Part(
                part.name, part.run, count=part.count, example=(part.example,), modules=own.policy,
                loading=loading if part.acts else None,
            )
            for part in parts if part.count
        ],
        repeats=repeats,
    )  # fmt: skip


def _named(algorithm: Any) -> str:
    return algorithm.__name__ if isinstance(algorithm, type) else f"an object of {type(algorithm).__name__}"
