"""What a machine would be predicted with before its calibration, had nobody measured its class."""

from __future__ import annotations

from dataclasses import replace

import torch

from placer import machine
from placer.machine import MeasuredSpeeds
from placer.pricing import beside, nearest_profile, on_other_cpu, small_step_seconds
from placer.profile import DeviceFit, Profile


def without_own_class(profile: Profile | None) -> Profile:
    """The estimate for a calibrated machine's CPU, or for this one's (None), from another class of machine.

    Of a calibrated machine the speed probe is what its calibration says of the same work. This one is probed, with the
    threads that the process has. Raises ProfileError.
    """
    facts = machine.fingerprint() if profile is None else profile.fingerprint
    nearest = nearest_profile(facts, own_class=False)
    counts = (torch.get_num_threads(),) if profile is None else profile.threads("cpu")
    fits: list[DeviceFit] = []
    for threads in counts:
        probed = machine.measure_speeds() if profile is None else _as_calibrated(profile, threads)
        fits += on_other_cpu(nearest, beside(nearest, probed, threads), threads=threads).fits
    return replace(nearest, fits=tuple(fits), fingerprint=facts, name=f"estimate from {nearest.fingerprint['cpu']}")


def _as_calibrated(profile: Profile, threads: int) -> MeasuredSpeeds:
    rates = profile.fit("cpu", threads).rates
    return MeasuredSpeeds(small_step_seconds(profile, threads), rates["flops/float32"], rates["bytes_per_second"])
