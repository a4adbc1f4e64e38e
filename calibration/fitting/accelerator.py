"""Fits all numbers of an accelerator: device times of ops as for the CPU, and the pace of the host that issues them.

What each thing that a host does costs is known (``pricing.host_costs``) but for one factor, and steps whose device was
idle most of the time tell it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placer.calibration.benchmarks.fixed import PACE
from placer.calibration.fitting.adapt import OTHER_CLASS, Prior, adapt
from placer.calibration.fitting.framework import op_seconds
from placer.calibration.fitting.interval import least_base
from placer.calibration.fitting.samples import ops_by_family
from placer.calibration.measuring.journal import StepObservation
from placer.errors import UnknownGPU
from placer.pricing import CostModel, device_model, gpu_profile
from placer.pricing.framework import HOST_DOUBT, KERNELS, framework_seconds, host_framework, host_seconds, issued_as
from placer.pricing.gpu import edition as gpu_edition
from placer.pricing.timeline import SIZES, copies_of_steps, waits_for_device
from placer.profile import Device, reported_gpu

#: A step whose kernels take less than this share of it, by their prices, is its host's; and the least share of it that
#: is, however long waits are.
HOST_BOUND, LEAST_OF_STEP = 0.8, 0.3
#: Fewest networks that show a host's pace.
LEAST_SHOWING = 8
#: Standard deviation of log(pace) between a calibration's minute and the hour around it. The steps of the minute tell
#: 0.78, 1.22 and 1.24 on the three records of NVIDIA GPUs, where the cells measured after it took 0.90, 1.05 and 1.07.
MOMENT = 0.14
#: The part of log(pace) that is put down to the moment, wherever the pace lies. It is what is likeliest where moments
#: differ by ``MOMENT`` and hosts by 0.17 in the mean, as those of the eight CPU calibrations of the records do: the
#: soft threshold of a Laplace prior, MOMENT^2 / 0.17.
PUT_DOWN_TO_MOMENT = 0.12
#: Standard deviation of log(seconds) of a network's step around its costs at the pace of its moment, at the least. With
#: it nine in ten cells of the records lie in the interval, each record and network left out of the costs.
OF_STEP = 0.2
#: How far a GPU's ops are from what is known of its model.
OF_ITS_MODEL = Prior(0.0, 0.25, 0.25)


def kernel_counts(observations: Sequence[StepObservation]) -> dict[str, float]:
    """Kernels that one call of each op runs in: the median, as far as kernels were recorded."""
    seen: dict[str, list[float]] = {}
    for step in observations:
        for op in step.ops:
            if op.kernels > 0.0 and (op.family != "optimizer" or step.family == "optimizer"):
                seen.setdefault(f"{KERNELS}/{issued_as(op.work())}", []).append(op.kernels)
    return {name: statistics.median(values) for name, values in seen.items()}


@dataclass(frozen=True)
class Pace:
    """How many times the costs that come with placer a host takes (see ``pricing.host_costs``).

    ``between_rounds`` is the standard deviation of log(pace) between the rounds of a calibration, ``between_networks``
    that of log(seconds) of the fixed networks around the pace; 0.0 where these were not measured.
    """

    factor: float = 1.0
    between_rounds: float = 0.0
    between_networks: float = 0.0


def host_pace(observations: Sequence[StepObservation], fit: Device, framework: Mapping[str, float]) -> Pace:
    """The pace of the steps whose kernels the host did not wait for; ``fit`` prices these.

    The fixed networks tell it; without them the generated ones, or all steps. ``framework`` is a host's at pace 1.
    """
    beyond = _beyond_costs(observations, fit, framework)
    fixed = [rounds for (family, _), rounds in beyond.items() if family == PACE]
    generated = [rounds for (family, _), rounds in beyond.items() if family == "network"]
    shown = next((some for some in (fixed, generated, list(beyond.values())) if len(some) >= LEAST_SHOWING), [])
    if not shown:
        return Pace()
    networks = np.array([statistics.median(rounds) for rounds in shown])
    pace = float(np.median(networks))
    factor = math.exp(pace - math.copysign(min(abs(pace), PUT_DOWN_TO_MOMENT), pace))
    if shown is not fixed:
        return Pace(factor)
    return Pace(factor, _between_rounds(fixed), least_base(np.abs(networks - pace), np.zeros(len(networks))))


def _beyond_costs(
    observations: Sequence[StepObservation], fit: Device, framework: Mapping[str, float]
) -> dict[tuple[str, str], list[float]]:
    """log(seconds of the host / its costs) of all steps that are the host's, in rounds, by (family, name) of a step."""
    model = CostModel(fit)
    found: dict[tuple[str, str], list[float]] = {}
    for step in observations:
        waits = any(waits_for_device(op.op) for op in step.ops)
        if waits or op_seconds(step, model) >= HOST_BOUND * step.seconds:
            continue
        host = max(step.seconds - launch_and_wait(fit), LEAST_OF_STEP * step.seconds)
        costs = issued_seconds(step, framework) + framework_seconds(step.counts, framework)
        if costs > 0.0:
            found.setdefault((step.family, step.name), []).append(math.log(host / costs))
    return found


def _between_rounds(networks: Sequence[Sequence[float]]) -> float:
    """Standard deviation, between rounds, of what all networks take longer than in their middle round."""
    count = min(map(len, networks))
    if count < 2:
        return 0.0
    beyond = []
    for rounds in networks:
        middle = statistics.median(rounds)
        beyond.append([ratio - middle for ratio in rounds[:count]])
    medians = [statistics.median(each) for each in zip(*beyond, strict=True)]
    return float(np.std(medians, ddof=1))


def issued_seconds(step: StepObservation, issue: Mapping[str, float]) -> float:
    """Seconds the host needs to issue all ops of a step; ``issue`` is what each takes."""
    return sum(host_seconds(op.work(), issue) * op.count for op in step.ops)


def with_copies(rates: Mapping[str, float]) -> dict[str, float]:
    """``rates`` with copies as steps make them: early calibrations timed those of one warm buffer alone."""
    found = dict(rates)
    for direction in ("h2d", "d2h"):
        prefix = f"copy/{direction}/pageable"
        if f"{prefix}/seconds_per_tensor" in rates and f"{prefix}/{SIZES[0]}" not in rates:
            start, rate = rates[f"{prefix}/seconds_per_tensor"], rates[f"{prefix}/bytes_per_second"]
            found |= copies_of_steps(direction, start, rate)
    return found


def launch_and_wait(fit: Device) -> float:
    """What a step timed on its own takes besides host and kernels: the last launch, and the wait."""
    return fit.rates.get("launch_seconds", 0.0) + fit.rates.get("sync_seconds", 0.0)


def fit_accelerator(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int, gpu: str = ""
) -> Device:
    """All numbers of one accelerator.

    ``framework`` holds what issuing an op and all between the ops take the host (``host_costs.host_framework``), and
    ``kernels/<op>``, the kernels that a call runs in. ``gpu`` is what the catalog calls the accelerator: what others
    published of it, and of others, is what its ops are compared with; else what its rates allow.
    """
    empty = Device(device, threads, with_copies(rates), {}, {}, {}, gpu=gpu, edition=gpu_edition() if gpu else 0)
    measured = {name: ops for name, ops in ops_by_family(observations).items() if name != "view"}
    found = replace(empty, families=adapt(empty, measured, 0.0, 0.0, OF_ITS_MODEL if gpu else OTHER_CLASS))
    usual = gpu_profile(gpu).fits[0].framework if gpu else host_framework()
    pace = host_pace(observations, found, usual)
    return replace(
        found,
        framework={**{name: pace.factor * cost for name, cost in usual.items()}, **kernel_counts(observations)},
        interval={
            "base": max(OF_STEP, pace.between_networks),
            "ops": 1.0,
            HOST_DOUBT: math.hypot(MOMENT, pace.between_rounds),
        },
    )


#: Families whose large ops say what arithmetic and what memory reach, and what a reader calls them.
_LARGE = {"matmul": "large products", "elementwise": "large elementwise operations"}
#: Seconds that a large op is expected to take at the least: launches and caches no longer count.
_FROM = 200e-6
#: Fewer large ops than this show nothing.
_LEAST = 3
#: Factor from which on measured and published times contradict each other. GPUs of one model differ by far less.
_CONTRADICTION = 2.0


def catalog_gpu(fingerprint: Mapping[str, Any], device: str) -> str:
    """The catalog name of an accelerator of the machine; "" where the catalog lacks it."""
    for facts in fingerprint.get("accelerators") or ():
        if facts.get("device") == device:
            try:
                return reported_gpu(facts).name
            except UnknownGPU:
                return ""
    return ""


def contradictions(observations: Sequence[StepObservation], device: str, gpu: str) -> tuple[str, ...]:
    """A warning for each kind of large op that takes twice what is known of ``gpu``, or half of it."""
    found: list[str] = []
    for family, words in _LARGE.items():
        timed = (op for step in observations for op in step.ops if op.family == family)
        ops = [(op.work(), op.seconds) for op in timed if op.seconds]
        expected, _, _ = device_model(gpu).price([work for work, _ in ops])
        ratios = [seconds / price for (_, seconds), price in zip(ops, expected, strict=True) if price >= _FROM]
        if len(ratios) < _LEAST:
            continue
        ratio = statistics.median(ratios)
        if not 1.0 / _CONTRADICTION <= ratio <= _CONTRADICTION:
            found.append(
                f"{device}: {words} take {ratio:.2g} times what is known of {gpu}: a driver, a power limit, a share of "
                "a partitioned GPU or a broken clock may be why"
            )
    return tuple(found)
