"""Fits all numbers of an accelerator: device times of ops as for the CPU, and the host's time to issue them.

On an accelerator a step lasts as long as the slower of host and device, so what it takes beyond its ops says nothing
about the framework unless the device was idle most of the time. The host's share is learnt from such steps only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from placer.calibration.fitting.device import fit_ops, split, unfitted
from placer.calibration.fitting.expectation import Expectation
from placer.calibration.fitting.families import ChosenHyperparameters
from placer.calibration.fitting.host import (
    issue_seconds,
    issued_seconds,
    kernel_counts,
    launch_and_wait,
    seconds_between_ops,
)
from placer.calibration.measuring.observation import StepObservation
from placer.pricing import Z90, CostModel, doubt, framework_seconds, kernels_of, pause_seconds
from placer.profile import DeviceFit

#: Fewer errors than this say nothing about the interval.
LEAST_ERRORS = 5
#: The interval where nothing says anything about it.
UNKNOWN_BASE = 0.25


def fit_accelerator(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int,
    expected: Expectation | None = None, host: Mapping[str, float] | None = None, gpu: str = "",
) -> DeviceFit:  # fmt: skip
    """All numbers of one accelerator; ``expected`` is what another machine's knows.

    ``host`` is the ``framework`` of a fit of this machine's CPU: between the ops the same code runs, whatever executes
    them, and most of its costs are better told apart where no device is waited for.

    ``framework`` holds ``host/<op>``, ``host/<family>`` and ``host``: seconds to issue one call; ``host_update/<op>``:
    what an update takes besides; ``kernels/<op>``: the kernels that a call runs in; and what the framework's own code
    takes between them. The interval comes from steps
    held out of a first fit. ``gpu`` is what the catalog calls the accelerator: it prices families without own samples.
    """
    chosen = ChosenHyperparameters()
    empty = unfitted(rates, device=device, threads=threads, expected=expected, gpu=gpu)

    def fit(some: Sequence[StepObservation]) -> DeviceFit:
        found, _ = fit_ops(some, empty, chosen, expected)
        issue = issue_seconds(some)
        between = seconds_between_ops(some, issue, found, host or {})
        return replace(found, framework={**issue, **kernel_counts(some), **between})

    held, rest = split(observations)
    first = fit(rest)
    return replace(fit(observations), interval=_interval(held, first))


def predict_alone(step: StepObservation, model: CostModel) -> tuple[float, float]:
    """(predicted seconds, sigma of its log from the ops alone) of an observed step: host or device, and the wait."""
    fit = model.fit
    works = [op.work() for op in step.ops]
    seconds, sigma, _ = model.price_works(works)
    pauses = [pause_seconds(kernels_of(work, fit.framework), fit) for work in works]
    prices = [(price + pause if price > 0.0 else 0.0) * op.count
              for op, price, pause in zip(step.ops, seconds, pauses, strict=True)]  # fmt: skip
    device = sum(prices)
    host = issued_seconds(step, fit.framework)
    host += framework_seconds(step.counts, fit.framework)
    total = max(host, device) + launch_and_wait(fit)
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
