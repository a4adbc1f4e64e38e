"""An accelerator's numbers: device times of ops as for the CPU, and the host's time to issue them.

On an accelerator a step lasts as long as the slower of host and device, so what it takes beyond its ops says nothing
about the framework unless the device was idle most of the time. The host's share is learnt from such steps only.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from placer.calibration.fitting import HELD_OUT, STEADY, counted_somewhere, fit_device, op_seconds
from placer.calibration.observation import StepObservation
from placer.calibration.transfer import Expectation
from placer.costs import CostModel, host_seconds
from placer.framework import framework_seconds
from placer.predict import Z90, doubt
from placer.profile import DeviceFit

Array = NDArray[np.float64]

#: A step whose kernels take less than this share of it waited for the host.
HOST_BOUND = 0.5
#: Fewer errors than this tell nothing about the interval.
LEAST_ERRORS = 5
#: The interval where nothing tells.
UNKNOWN_BASE = 0.25


def fit_accelerator(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int,
    expected: Expectation | None = None,
) -> DeviceFit:  # fmt: skip
    """All numbers of one accelerator; ``expected`` is what another machine's knows.

    ``framework`` holds ``host/<op>``, ``host/<family>`` and ``host``: seconds to issue one call; and what the
    framework's own code takes between them. The interval comes from steps held out of a first fit.
    """
    rest = [step for i, step in enumerate(observations) if i % HELD_OUT != 0]
    first = _with_host(fit_device(rest, rates, device=device, threads=threads, expected=expected), rest)
    held = observations[::HELD_OUT]
    final = _with_host(fit_device(observations, rates, device=device, threads=threads, expected=expected), observations)
    return replace(final, interval=_interval(held, first))


def _with_host(fit: DeviceFit, observations: Sequence[StepObservation]) -> DeviceFit:
    issue = issue_seconds(observations)
    return replace(fit, framework={**issue, **_between_ops(observations, issue, fit)})


def issue_seconds(observations: Sequence[StepObservation]) -> dict[str, float]:
    """Median seconds the host needs to issue one call: of each op, of each family, and of all."""
    seen: dict[str, list[float]] = {}
    for step in observations:
        for op in step.ops:
            # An optimizer's step divides evenly among equal tensors only: its own probes are its samples.
            if op.host_seconds > 0.0 and (op.family != "optimizer" or step.family == "optimizer"):
                for name in (f"host/{op.op}", f"host/{op.family}", "host"):
                    seen.setdefault(name, []).append(op.host_seconds)
    return {name: statistics.median(values) for name, values in seen.items()}


def _between_ops(
    observations: Sequence[StepObservation], issue: Mapping[str, float], fit: DeviceFit
) -> dict[str, float]:
    """Seconds per forward op, module call, ... of host-bound steps beyond what issuing their ops takes.

    Least squares on relative errors, no coefficient below zero.
    """
    model = CostModel(fit)
    steps = [s for s in observations if op_seconds(s, model) < HOST_BOUND * s.seconds]
    names = counted_somewhere(steps)
    if len(steps) < 2 * len(names) or not names:
        return {}
    waits = _around(fit)
    missing = [s.seconds - waits - sum(host_seconds(op.op, op.family, issue) * op.count for op in s.ops) for s in steps]
    weights = np.array([1.0 / s.seconds / math.hypot(1.0, s.spread / STEADY) for s in steps])
    rows: Array = np.array([[s.counts.get(name, 0.0) for name in names] for s in steps])
    regression = LinearRegression(positive=True, fit_intercept=False)
    regression.fit(rows * weights[:, None], np.array(missing) * weights)
    return {name: float(value) for name, value in zip(names, regression.coef_, strict=True)}


def _around(fit: DeviceFit) -> float:
    """What a step timed on its own takes besides host and kernels: the last launch, and the wait."""
    return fit.rates.get("launch_seconds", 0.0) + fit.rates.get("sync_seconds", 0.0)


def predict_alone(step: StepObservation, model: CostModel) -> tuple[float, float]:
    """(predicted seconds, sigma of its log from the ops alone) of an observed step: host or device, and the wait."""
    fit = model.fit
    seconds, sigma, _ = model.price_works([op.work() for op in step.ops])
    prices = [price * op.count for op, price in zip(step.ops, seconds, strict=True)]
    device = sum(prices)
    host = sum(host_seconds(op.op, op.family, fit.framework) * op.count for op in step.ops)
    host += framework_seconds(step.counts, fit.framework)
    total = max(host, device) + _around(fit)
    # While the device waits for the host, doubt about its kernels is none about the step.
    share = 1.0 if device >= host else device / host
    return total, share * doubt((op.family for op in step.ops), prices, sigma) / max(total, 1e-12)


def _interval(held: Sequence[StepObservation], fit: DeviceFit) -> dict[str, float]:
    """The constant such that nine held-out steps in ten lie within Z90 * hypot(base, sigma) of their prediction."""
    model = CostModel(fit)
    needed = []
    for step in held:
        predicted, sigma = predict_alone(step, model)
        if predicted > 0.0:
            error = abs(math.log(step.seconds / predicted)) / Z90
            needed.append(math.sqrt(max(error**2 - sigma**2, 0.0)))
    if len(needed) < LEAST_ERRORS:
        return {"base": UNKNOWN_BASE, "ops": 1.0}
    return {"base": max(float(np.quantile(needed, 0.9)), 0.02), "ops": 1.0}
