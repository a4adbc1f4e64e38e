"""Fits the interval of a device: how far steps are off that its first fit did not see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from placer.calibration.fitting.nearest import FAMILY_PER_PACE, Comparison, Expectation
from placer.calibration.measuring.journal import StepObservation
from placer.pricing import Z90, CostModel, doubt
from placer.pricing.framework import framework_seconds
from placer.profile import Device

Array = NDArray[np.float64]

#: Held-out networks from which on they alone make the interval, and steps of any kind below which nothing does.
ENOUGH_NETWORKS, LEAST_JUDGED = 15, 5
#: The interval where nothing says anything about it.
UNKNOWN = {"base": 0.25, "ops": 1.0}
#: Networks that the interval of another machine of the same class counts for: between two measurement sessions of one
#: machine the errors differ by a fifth, and so many show no more.
NETWORKS_ELSEWHERE = 40
#: Standard deviation of log(seconds) of all steps from one hour to another, which a minute's steps do not show: three
#: calibrations within half an hour price the full suite 0.04 to 0.11 apart (calibration/records/cpu-amd-zen5-2-core).
ANOTHER_HOUR = 0.09


def predict_step(step: StepObservation, model: CostModel) -> tuple[float, float]:
    """(predicted seconds, sigma of its log from the ops alone) of an observed step."""
    seconds, sigma, _ = model.price_works([op.work() for op in step.ops])
    prices = [price * op.count for op, price in zip(step.ops, seconds, strict=True)]
    total = framework_seconds(step.counts, model.fit.framework) + sum(prices)
    return total, doubt((op.family for op in step.ops), prices, sigma) / max(total, 1e-12)


def log_ratios(observations: Sequence[StepObservation], fit: Device) -> list[float]:
    """Logs of what steps took over what ``fit`` predicts."""
    model = CostModel(fit)
    return [math.log(step.seconds / predict_step(step, model)[0]) for step in observations]


def fit_interval(
    held: Sequence[StepObservation], fit: Device, expected: Expectation, comparison: Comparison, spread: float
) -> dict[str, float]:
    """Constants such that nine held-out steps in ten lie within Z90 * hypot(base, ops * sigma) of their prediction.

    They are of steps that run at another hour than the calibration. Networks alone count where there are enough of
    them, since people ask for networks; blocks show how far a single op can be off. ``held_out`` is the error itself
    that nine in ten stayed below, in log(seconds): for people to read. Where a machine of the same class (``expected``)
    knows these, what this one's moments differ by (``spread``) is added, and they change as far as the errors here are
    believed.
    """
    judged = [step for step in held if step.family == "network"]
    if not comparison.same_class and len(judged) < ENOUGH_NETWORKS:
        judged = list(held)
    model = CostModel(fit)
    predicted = [(step.seconds, *predict_step(step, model)) for step in judged]
    found = np.array([(abs(math.log(seconds / p)), sigma) for seconds, p, sigma in predicted if p > 0.0])
    errors, sigmas = found.T if len(found) else (np.empty(0), np.empty(0))
    if comparison.same_class:
        # At another pace than the other machine's, every family has one of its own.
        added = math.hypot(FAMILY_PER_PACE * comparison.believed, spread)
        interval = wider(expected.fit.interval, added)
        if len(errors):
            factor = _widening(interval["base"], interval["ops"], errors, sigmas)
            interval = {name: constant * factor for name, constant in interval.items()}
            interval["ops"] = min(interval["ops"], 1.0)
    elif len(errors) < LEAST_JUDGED:
        interval = dict(UNKNOWN)
    else:
        base, ops = _likeliest(errors, sigmas)
        interval = {"base": base, "ops": ops, "held_out": float(np.quantile(errors, 0.9))}
    return wider(interval, ANOTHER_HOUR)


def wider(interval: Mapping[str, float], added: float) -> dict[str, float]:
    """The constants of steps whose log(seconds) have so much more standard deviation."""
    found = dict(interval, base=math.hypot(interval["base"], added))
    if "held_out" in interval:
        found["held_out"] = math.hypot(interval["held_out"], Z90 * added)
    return found


def _likeliest(errors: Array, sigmas: Array) -> tuple[float, float]:
    """Of the pairs whose interval holds nine errors in ten, the likeliest."""
    best, result = math.inf, (0.25, 1.0)
    # Errors of one op do not all point the same way: more than their linear sum is never promised.
    for ops in (0.25, 0.5, 0.75, 1.0):
        base = least_base(errors, sigmas, ops)
        total = np.hypot(base, ops * sigmas)
        loss = float(np.mean(np.log(total) + 0.5 * (errors / total) ** 2))
        if loss < best:
            best, result = loss, (base, ops)
    return result


def least_base(errors: Array, sigmas: Array, ops: float = 1.0) -> float:
    """The constant such that nine errors in ten lie within Z90 * hypot(base, ops * sigma)."""
    needed = np.sqrt(np.maximum((errors / Z90) ** 2 - (ops * sigmas) ** 2, 0.0))
    return max(float(np.quantile(needed, 0.9)), 0.02)


def _widening(base: float, ops: float, errors: Array, sigmas: Array) -> float:
    """The factor on the interval of another machine of this class that the errors ask for, as far as they are believed.

    The ninth of ten among twenty errors is itself off by a quarter; the other machine's rest on many more.
    """
    seen = float(np.quantile(errors / (Z90 * np.hypot(base, ops * sigmas)), 0.9))
    return float(max(seen, 0.1) ** (len(errors) / (len(errors) + NETWORKS_ELSEWHERE)))
