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

from placer.calibration.fitting.device import HELD_OUT, Tuned, fit_device
from placer.calibration.fitting.framework import learnt, op_seconds, pace_shown, positive_costs, weight_of
from placer.calibration.fitting.transfer import Expectation
from placer.calibration.measuring.observation import OpObservation, StepObservation
from placer.pricing import HOST, HOST_UPDATE, Z90, CostModel, doubt, framework_seconds, host_seconds
from placer.profile import DeviceFit

Array = NDArray[np.float64]

#: A step whose kernels take less than this share of it waited for the host.
HOST_BOUND = 0.5
#: Fewer errors than this tell nothing about the interval.
LEAST_ERRORS = 5
#: Relative difference of what a count costs the host of an accelerator, and the CPU when it runs the ops itself: their
#: operands go through its caches then.
HOST_SPREAD = 0.8
#: Fewer probes of an optimizer than this do not tell its own times from those of all optimizers.
LEAST_UPDATES = 4
#: The interval where nothing tells.
UNKNOWN_BASE = 0.25


def fit_accelerator(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int,
    expected: Expectation | None = None, host: Mapping[str, float] | None = None,
) -> DeviceFit:  # fmt: skip
    """All numbers of one accelerator; ``expected`` is what another machine's knows.

    ``host`` is the ``framework`` of a fit of this machine's CPU: between the ops the same code runs, whatever executes
    them, and most of it is told apart better where no device is waited for.

    ``framework`` holds ``host/<op>``, ``host/<family>`` and ``host``: seconds to issue one call; ``host_update/<op>``:
    what an update takes besides; and what the framework's own code takes between them. The interval comes from steps
    held out of a first fit.
    """
    tuned = Tuned()

    def fit(some: Sequence[StepObservation]) -> DeviceFit:
        found = fit_device(some, rates, device=device, threads=threads, tuned=tuned, expected=expected)
        issue = issue_seconds(some)
        return replace(found, framework={**issue, **_between_ops(some, issue, found, host or {})})

    held, rest = observations[::HELD_OUT], [step for i, step in enumerate(observations) if i % HELD_OUT != 0]
    first = fit(rest)
    return replace(fit(observations), interval=_interval(held, first))


def issue_seconds(observations: Sequence[StepObservation]) -> dict[str, float]:
    """Seconds the host needs to issue one call: the median of each op, of each family, and of all; updates apart."""
    seen: dict[str, list[float]] = {}
    updates: dict[str, list[OpObservation]] = {}
    for step in observations:
        for op in step.ops:
            if op.host_seconds <= 0.0:
                continue
            if op.family != "optimizer":
                for name in (f"{HOST}/{op.op}", f"{HOST}/{op.family}", HOST):
                    seen.setdefault(name, []).append(op.host_seconds)
            elif step.family == "optimizer":  # divided among its calls, which is right where all tensors are equal
                for name in (op.op, op.family):
                    updates.setdefault(name, []).append(op)
    medians = {name: statistics.median(values) for name, values in seen.items()}
    return medians | {
        name: seconds
        for op, probes in updates.items()
        if len(probes) >= LEAST_UPDATES or op == "optimizer"
        for name, seconds in _update_seconds(op, probes).items()
    }


def _update_seconds(name: str, probes: Sequence[OpObservation]) -> dict[str, float]:
    """What an update takes the host whatever it updates, and what each tensor adds.

    On a GPU one call updates all of them (``foreach``): a time per tensor alone is right for one number of tensors.
    """
    tensors = np.array([float(op.count) for op in probes])
    seconds = np.array([op.host_seconds for op in probes]) * tensors
    counts = np.column_stack([np.ones(len(probes)), tensors])
    whole, each = positive_costs(counts, seconds, 1.0 / seconds, np.zeros(2), HOST_SPREAD).tolist()
    return {f"{HOST_UPDATE}/{name}": whole, f"{HOST}/{name}": each}


def _issued(step: StepObservation, issue: Mapping[str, float]) -> float:
    return sum(host_seconds(op.work(), issue) * op.count for op in step.ops)


def _between_ops(
    observations: Sequence[StepObservation], issue: Mapping[str, float], fit: DeviceFit, host: Mapping[str, float]
) -> dict[str, float]:
    """Seconds per forward op, module call, ... of host-bound steps beyond what issuing their ops takes.

    ``host``: what each costs on the CPU, which at the pace seen here holds what the steps hardly tell apart.
    """
    model = CostModel(fit)
    steps = [s for s in observations if op_seconds(s, model) < HOST_BOUND * s.seconds]
    names = learnt(steps, host)
    if not steps or not names:
        return {}
    rows: Array = np.array([[s.counts.get(name, 0.0) for name in names] for s in steps])
    waits = _around(fit)
    missing = [s.seconds - waits - _issued(s, issue) for s in steps]
    seconds, weights = np.array(missing), np.array([weight_of(s) for s in steps])
    there = np.array([host.get(name, 0.0) for name in names])
    pace = pace_shown(rows @ there, seconds, weights)
    if pace is None and len(steps) < 2 * len(names):
        return {}
    costs = positive_costs(rows, seconds, weights, there * (pace or 0.0), HOST_SPREAD)
    return dict(zip(names, costs.tolist(), strict=True))


def _around(fit: DeviceFit) -> float:
    """What a step timed on its own takes besides host and kernels: the last launch, and the wait."""
    return fit.rates.get("launch_seconds", 0.0) + fit.rates.get("sync_seconds", 0.0)


def predict_alone(step: StepObservation, model: CostModel) -> tuple[float, float]:
    """(predicted seconds, sigma of its log from the ops alone) of an observed step: host or device, and the wait."""
    fit = model.fit
    seconds, sigma, _ = model.price_works([op.work() for op in step.ops])
    prices = [price * op.count for op, price in zip(step.ops, seconds, strict=True)]
    device = sum(prices)
    host = _issued(step, fit.framework)
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
