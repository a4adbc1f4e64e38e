"""A CPU's fit learnt anew from its own points, where what an op is described by has changed.

A profile holds the points that its residuals rest on, and prices them. Fitted again to these prices, it is what
calibration would have found with other amounts, features or counts, as far as some thousand points tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from placer.calibration.fitting.expectation import Expectation
from placer.calibration.fitting.family import fit_op_times
from placer.calibration.fitting.framework import positive_costs, step_weight
from placer.calibration.fitting.kernel import Hyperparameters
from placer.calibration.fitting.measured_ops import OpTimes
from placer.calibration.fitting.points import NUGGET
from placer.calibration.measuring.observation import StepObservation
from placer.pricing import LEARNT, framework_seconds, with_weights
from placer.profile import DeviceFit

#: How firmly a count's cost stays near what it was: hardly.
SPREAD = 1.0


def own_points(fit: DeviceFit) -> dict[str, OpTimes]:
    """The points of each family, with the seconds that ``fit`` prices them at."""
    known = Expectation(fit)
    found = {}
    for name in fit.families:
        works = known.points(name)
        found[name] = OpTimes(tuple(works), np.exp(known.log_seconds(works)), np.zeros(len(works)))
    return found


def refitted(fit: DeviceFit, points: Mapping[str, OpTimes]) -> DeviceFit:
    """``fit`` with the families that ``points`` has learnt anew from these; their hyperparameters stay."""
    found = dict(fit.families)
    for name, times in points.items():
        before = found[name]
        kept = Hyperparameters(before.length_scales, before.op_scale, before.signal, NUGGET)
        after, _ = fit_op_times(name, times, replace(fit, families={}), kept, transferred=True)
        found[name] = with_weights(replace(after, noise=before.noise, measured=before.measured))
    return replace(fit, families=found)


def recounted(fit: DeviceFit, without: Iterable[str], steps: Sequence[StepObservation]) -> DeviceFit:
    """``fit`` without some of the framework's counts: the others take their place, as far as ``steps`` allow."""
    left = [name for name in LEARNT if name not in set(without)]
    counts = np.array([[step.counts.get(name, 0.0) for name in left] for step in steps])
    seconds = np.array([framework_seconds(step.counts, fit.framework) for step in steps])
    weights = np.array([step_weight(step) for step in steps])
    before = np.array([fit.framework.get(name, 0.0) for name in left])
    costs = positive_costs(counts, seconds, weights, before, SPREAD)
    return replace(fit, framework=dict(zip(left, costs.tolist(), strict=True)))
