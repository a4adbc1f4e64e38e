"""What is known of how fast a CPU is, as figures beside a profile of another one: see ``speed_reading``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from placer import machine
from placer.pricing.predict import predict
from placer.profile import USUAL_KIND, Profile, cpu_kinds
from placer.tracing import trace
from placer.workload import make_workload

#: Share of the time that other programs take on a machine that counts as quiet: what a system does of its own.
_QUIET = 0.1
#: A share of the time counts as at most this: beyond, a reading says next to nothing.
_MOST = 0.9
#: Standard deviation of log(seconds) where the speed could not be read: profiles of another class, not scaled, are
#: off by up to 56 % in the median and 120 % in one of ten (docs/dev/findings.md).
_UNREAD = 0.5

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_NotNegative = Annotated[float, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class CpuSpeeds:
    """What a CPU can do with one number of threads.

    ``dispatch_seconds``: start an op that computes nothing. ``flops_per_second``: multiply float32 matrices.
    ``bytes_per_second``: copy main memory, bytes read and written. ``core_flops_per_second`` and
    ``core_bytes_per_second``: the same of one thread alone. ``region_seconds``: start a loop on all threads.
    ``cycle_seconds``: a core's cycle; 0: the start tells it. ``doubt``: standard deviation of the log of these, as
    far as other programs ran when they were read; 0: the machine was quiet. ``note``: a sentence on that.
    """

    dispatch_seconds: _Positive
    flops_per_second: _Positive
    bytes_per_second: _Positive
    core_flops_per_second: _Positive
    core_bytes_per_second: _Positive
    region_seconds: _NotNegative = 0.0
    cycle_seconds: _NotNegative = 0.0
    doubt: _NotNegative = 0.0
    note: str = ""


def beside(nearest: Profile, measured: machine.MeasuredSpeeds, threads: int) -> CpuSpeeds:
    """The speeds of a CPU with ``threads`` threads, by what was measured on it with some number of them, and with one.

    How fast it starts ops shows in the small step: in what it took, beside what it takes by the profile ``nearest``.
    """
    calibrated = threads if threads in nearest.threads("cpu") else 1
    slower = measured.small_step_seconds / small_step_seconds(nearest, calibrated)

    def of_all(all_together: float, one: float) -> float:
        if threads in (1, measured.threads) or measured.threads == 1:
            return one if threads == 1 else all_together
        return one * math.pow(threads, math.log(all_together / one) / math.log(measured.threads))

    read = CpuSpeeds(
        dispatch_seconds=slower * nearest.fit("cpu", calibrated).rates["dispatch_seconds"],
        flops_per_second=of_all(measured.flops_per_second, measured.core_flops_per_second),
        bytes_per_second=of_all(measured.bytes_per_second, measured.core_bytes_per_second),
        core_flops_per_second=measured.core_flops_per_second,
        core_bytes_per_second=measured.core_bytes_per_second,
        region_seconds=measured.region_seconds if threads > 1 else 0.0,
    )
    if measured.others_share < _QUIET:
        return read
    return _beside_others(read, measured.others_share, as_nearest(nearest, threads))


def _beside_others(read: CpuSpeeds, others_share: float, usual: CpuSpeeds) -> CpuSpeeds:
    """What a reading says while other programs took a share of the time.

    Alone, the CPU is as fast as was read, or faster by up to all that they took. Within that, its speeds are the
    ``usual`` ones, or those next to them.
    """
    left = 1.0 - min(others_share, _MOST)
    speeds = {}
    for name in ("dispatch_seconds", "region_seconds"):
        seconds = getattr(read, name)
        speeds[name] = min(max(getattr(usual, name), left * seconds), seconds)
    for name in ("flops_per_second", "bytes_per_second", "core_flops_per_second", "core_bytes_per_second"):
        rate = getattr(read, name)
        speeds[name] = min(max(getattr(usual, name), rate), rate / left)
    return CpuSpeeds(
        **speeds,
        doubt=min(-math.log(left) / math.sqrt(3.0), _UNREAD),  # of what lies anywhere within, from one of its ends
        note=f"the speed of this CPU was read beside other programs, which took {others_share:.0%} of its time; the "
        "next process reads it again",
    )


def small_step_seconds(profile: Profile, threads: int) -> float:
    """Seconds of the small step, as the profile prices it."""
    model, batch = machine.small_network()
    step = make_workload(model, batch=batch, mode="train", optimizer="adam", data="device")
    return predict(trace(step), profile, devices=("cpu",), threads=threads)["cpu"].step_seconds


def unread(nearest: Profile, threads: int, why: str) -> CpuSpeeds:
    """The speeds of the machine of ``nearest``, for want of this one's: ``why`` they could not be read."""
    return replace(
        as_nearest(nearest, threads),
        doubt=_UNREAD,
        note=f"the speed of this CPU could not be read ({why}): it counts as {nearest.fingerprint['cpu']}",
    )


def as_nearest(nearest: Profile, threads: int) -> CpuSpeeds:
    """The speeds of the machine of ``nearest``, with as many cores as ``threads``; these share ops as a server's do."""
    server = cpu_kinds()[USUAL_KIND]
    core = nearest.fit("cpu", 1).rates
    together = dict(core)
    if threads in nearest.threads("cpu"):
        together = dict(nearest.fit("cpu", threads).rates)
    else:
        for name in ("flops/float32", "bytes_per_second"):
            together[name] *= threads**server.scaling
    return CpuSpeeds(
        dispatch_seconds=together["dispatch_seconds"],
        flops_per_second=together["flops/float32"],
        bytes_per_second=together["bytes_per_second"],
        core_flops_per_second=core["flops/float32"],
        core_bytes_per_second=core["bytes_per_second"],
        region_seconds=server.region_seconds(threads),
    )
