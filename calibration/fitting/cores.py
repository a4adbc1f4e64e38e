"""Fits a CPU with many threads: one core's prices, and a few numbers of all cores together.

What an op takes on several cores follows from what one takes and from how torch shares it (``pricing.physics``). So
a calibration measures one core at length. Of all cores it measures rates, what a region and a thread take to start, and
some whole steps, which tell the pace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from placer.calibration.fitting.interval import log_ratios
from placer.calibration.fitting.nearest import Expectation
from placer.calibration.measuring.journal import StepObservation
from placer.pricing import Z90, starting
from placer.profile import THREAD_SECONDS, Cores, Device, on_cores

#: Numbers of threads up to which each is measured and fitted as such.
FEW_THREADS = 2
#: Seconds to start a region on two threads, and the power of the logarithm of their number that it grows with
#: (calibration/records/nvidia-h200-16-core-second/thread_ops.jsonl.xz). For where it was not measured.
REGION, REGION_POWER = 1.73e-6, 0.82
#: Paces that are believed, and halvings in which one is found.
PACES, HALVINGS = (0.25, 8.0), 14
#: Standard deviation of log(seconds) that sharing adds to a step: with it the 90 % interval holds nine in ten of 131
#: steps on 16 threads of three machines, and of 230 on 1 to 16 of one (docs/accuracy.md).
SHARING = 0.22


def fit_cores(
    observations: Sequence[StepObservation], rates: Mapping[str, float], core: Device, threads: int
) -> Device:
    """The fit of all cores together; ``core`` is that of one thread. Its families are those of ``core``."""
    pace = math.exp(float(np.median(log_ratios(observations, _all_cores(core, rates, threads)))))
    of_all = _all_cores(core, rates, threads, pace)
    cores = replace(of_all.cores, rates=rates) if of_all.cores else None
    return replace(of_all, families={}, framework={}, interval=_interval(core), cores=cores)


def core_of_steps(
    observations: Sequence[StepObservation], rates: Mapping[str, float], known: Expectation, threads: int
) -> Device:
    """One core of a machine on which nothing ran on one thread: that of another (``known``), at this one's pace.

    Ops and all between them start at the pace. What they do once they have started, a core does as ``known`` says. The
    pace is found by steps on so many ``threads``: half of them are faster, half slower than predicted.
    """

    def core(pace: float) -> Device:
        return starting(known.fit, pace * known.fit.rates["dispatch_seconds"])

    def slower(pace: float) -> bool:
        return float(np.median(log_ratios(observations, _all_cores(core(pace), rates, threads)))) > 0.0

    families = {name: replace(family, measured=0) for name, family in known.fit.families.items()}
    return replace(core(_crossing(slower, *PACES)), reference=known.name, families=families)


def _interval(core: Device) -> dict[str, float]:
    """The constants of the interval: those of one core, and what sharing adds.

    The steps that were measured on all cores do not tell it: they are few, and those of early calibrations are blocks
    of ops as no network has them.
    """
    base = math.hypot(core.interval.get("base", 0.0), SHARING)
    return {**core.interval, "base": base, "held_out": Z90 * base}


def _all_cores(core: Device, rates: Mapping[str, float], threads: int, pace: float = 1.0) -> Device:
    """What all cores take, by what one of them does."""
    cores = Cores(
        core.rates,
        region_seconds=rates.get("region_seconds", REGION * math.log2(threads) ** REGION_POWER),
        flops_per_second=rates["flops/float32"],
        bytes_per_second=rates["bytes_per_second"],
        thread_seconds=rates.get("thread_seconds", THREAD_SECONDS),
        pace=pace,
    )
    return on_cores(core, [Device("cpu", threads, dict(rates), {}, {}, {}, cores=cores)], threads)


def _crossing(above: Callable[[float], bool], low: float, high: float) -> float:
    """Where ``above`` changes from True to False between two positive numbers, found by halving between them."""
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if above(middle) else (low, middle)
    return math.sqrt(low * high)
