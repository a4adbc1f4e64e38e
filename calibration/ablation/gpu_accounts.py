"""Published accounts of "CPU or GPU?": the ratio of both times with each mechanism of GPUs switched off.

Many are of small networks, whose steps the host bounds: they tell of the host, and of decisions, what steps that were
published for the sake of the GPU do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from placer.calibration.ablation.mechanism import Outcome, is_wrong
from placer.calibration.suite.accounts import Host, Part, accounts
from placer.calibration.validation.accounts import host_profile, read_reported
from placer.calibration.validation.elsewhere import priced_elsewhere
from placer.errors import PlacerError
from placer.pricing import gpu_profile
from placer.profile import Profile, find_gpu
from placer.tracing import Trace, trace
from placer.workload import make_workload


@dataclass(frozen=True, eq=False)
class AccountPoint:
    """A point of an account. ``steps`` are the traces of what runs on the GPU, each with its part.

    ``on_cpu`` are predicted seconds where everything runs on the CPU, ``beside`` those of what runs there although the
    rest is on the GPU. ``reported`` is the speed-up by the GPU.
    """

    gpu: str
    host: Host
    steps: tuple[tuple[Part, Trace], ...]
    on_cpu: float
    beside: float
    reported: float


@cache
def account_points(collection: Path) -> tuple[AccountPoint, ...]:
    """Every point of ``collection`` that can be rebuilt here, traced. Raises PlacerError where it is no collection."""
    return tuple(_points(collection))


def _points(collection: Path) -> Iterator[AccountPoint]:
    reported = read_reported(collection)
    for account in accounts():
        for point in account.points:
            if (account.id, point.at) not in reported:
                continue
            host = point.cpu or account.cpu
            gpu_host = point.gpu_host or host
            try:
                steps = tuple((part, _traced(part)) for part in point.parts)
            except (PlacerError, ImportError):
                continue
            apart = [(part, step) for part, step in steps if "gpu" in part.counted and part.on_host]
            yield AccountPoint(
                find_gpu(point.gpu or account.gpu).name, gpu_host,
                tuple((part, step) for part, step in steps if "gpu" in part.counted and not part.on_host),
                _seconds([(part, step) for part, step in steps if "cpu" in part.counted], host_profile(host), host),
                _seconds(apart, host_profile(gpu_host), gpu_host), reported[account.id, point.at],
            )  # fmt: skip


def _traced(part: Part) -> Trace:
    return trace(make_workload(
        part.model(), example=part.example(), mode=part.mode, loss=part.loss,
        optimizer=part.optimizer if part.mode == "train" else None, data=part.data,
    ))  # fmt: skip


def _seconds(steps: Iterable[tuple[Part, Trace]], profile: Profile, host: Host) -> float:
    device = profile.devices()[0]
    return sum(
        part.count * priced_elsewhere(step, profile, device, host.cores, part.data).step_seconds for part, step in steps
    )


def outcome_of_accounts(points: Iterable[AccountPoint]) -> Outcome:
    """What these come to, priced as things are now: seconds on the GPU over those on the CPU, predicted / reported."""
    errors, wrong = [], []
    profiles: dict[tuple[str, Host], Profile] = {}
    for point in points:
        key = point.gpu, point.host
        if key not in profiles:
            profiles[key] = gpu_profile(point.gpu, host_profile(point.host))
        predicted = (point.beside + _seconds(point.steps, profiles[key], point.host)) / point.on_cpu
        errors.append(math.log(predicted * point.reported))
        wrong.append(float(is_wrong(predicted, 1.0 / point.reported, 1.0)))
    return Outcome(np.array(errors), np.array(wrong))
