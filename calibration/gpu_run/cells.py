"""Predicts and measures networks into ``measurements.json``, which ``placer validate --against`` replays.

The process has never used the recorder, whose library makes every later launch slower.
"""

from __future__ import annotations

from collections.abc import Sequence

from placer import profile
from placer.calibration.gpu_run import networks
from placer.calibration.gpu_run.calibrating import PROFILE
from placer.calibration.gpu_run.job import Job
from placer.calibration.suite import Entry
from placer.calibration.validation.run import validate
from placer.errors import ProfileError
from placer.profile import Profile

#: Seconds that measuring one cell takes: the step repeats itself well on an accelerator, and there are many networks.
SECONDS_PER_CELL = 0.2


def on_device(job: Job) -> None:
    """Add the cells of networks on the device."""
    _measure(job, networks.on_device(job), job.device)


def on_cpu(job: Job) -> None:
    """Add the cells of networks on the CPU."""
    _measure(job, networks.on_cpu(job), "cpu")


def in_bfloat16(job: Job) -> None:
    """Add the cells of networks in bfloat16, and of the same in float32, on the device."""
    _measure(job, networks.in_bfloat16(job), job.device)


def _measure(job: Job, some: Sequence[Entry], device: str) -> None:
    """Measure these networks on one device until the job's time is used; what the record has is kept."""
    validate(
        some, _known_profile(job), (device,), progress=job.say, output=job.folder / "measurements.json",
        rounds=3, time_limit_per_cell=SECONDS_PER_CELL, deadline=job.deadline, clock=job.clock, isolated=False,
    )  # fmt: skip


def _known_profile(job: Job) -> Profile:
    """What was calibrated here; where that failed, any profile will do: the record is predicted anew when replayed."""
    try:
        return profile.load(job.folder / PROFILE)
    except ProfileError as error:
        job.say(f"not calibrated ({error}): predictions are of another machine")
        return profile.load(profile.shipped()[0])
