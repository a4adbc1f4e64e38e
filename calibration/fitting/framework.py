"""Fits what torch takes beyond the ops of a step on the CPU: seconds per forward op, autograd node, module call, ..."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from placer.calibration.fitting.nearest import Comparison, Expectation
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.pricing import CostModel
from placer.pricing.framework import BACKWARD, FORWARD, LEARNT, UPDATE
from placer.profile import Device

Array = NDArray[np.float64]

#: A step whose repetitions spread by more than this counts less.
STEADY = 0.1
#: Weight of a block next to a network: its branches stand side by side, and are larger than layers.
BLOCK_TRUST = 0.03
#: Relative error of an observed step, and relative difference of a coefficient between two machines of other classes,
#: and of the same class.
STEP_SPREAD, OTHER_CLASS_SPREAD, SAME_CLASS_SPREAD = 0.1, 0.4, 0.1
#: Fewest phases that show a pace. A lower pace than the least is noise, or of a clock that stands still between ops.
LEAST_SHOWING, LEAST_PACE = 8, 0.1
#: Rounds of the fit: after each, what is this many medians off (and more than this share of a step) is left out.
ROUNDS, FAR_OFF, NEAR = 3, 3.0, 0.02


def fit_framework(
    observations: Sequence[StepObservation], fit: Device, expected: Expectation, comparison: Comparison
) -> dict[str, float]:
    """Seconds per forward op, autograd node, module call, ...: what a step on the CPU takes beyond its ops.

    ``fit`` prices the ops. Coefficients that the steps hardly tell apart are held near those of another machine
    (``expected``), at this one's speed. Empty where there are too few phases for so many numbers, and the other machine
    holds none.
    """
    model = CostModel(fit)
    elsewhere = expected.fit.framework
    counted = {name for step in observations for name, count in step.counts.items() if count}
    names = [name for name in LEARNT if name in counted or name in elsewhere]
    rows, targets, weights = [], [], []
    for step in observations:
        trust = 1.0 if step.family == "network" else BLOCK_TRUST
        for of_phase, missing in _beyond_ops(step, model):
            row = [step.counts.get(name, 0.0) if name in of_phase else 0.0 for name in names]
            if any(row):
                rows.append(row)
                targets.append(missing)
                # Errors count relative to their step, less where its repetitions spread.
                weights.append(trust * (1.0 / step.seconds / math.hypot(1.0, step.spread / STEADY)))
    if not rows or (not elsewhere and len(rows) < 2 * len(names)):
        return {}
    counts, seconds, weigh = np.array(rows), np.array(targets), np.array(weights)
    seconds *= math.exp(comparison.believed - comparison.pace)  # at the pace that the ops are priced at
    there = np.array([elsewhere.get(name, 0.0) for name in names])
    if expected.same_class:
        # What took no time on a machine of this class, measured at length, takes none here.
        counts *= there > 0.0
        there *= math.exp(comparison.believed)
    else:
        dispatch = fit.rates["dispatch_seconds"] / expected.fit.rates["dispatch_seconds"]
        there *= measured_pace(counts @ there, seconds, weigh) or dispatch
    spread = SAME_CLASS_SPREAD if expected.same_class else OTHER_CLASS_SPREAD
    return dict(zip(names, positive_costs(counts, seconds, weigh, there, spread).tolist(), strict=True))


def measured_pace(elsewhere: Array, seconds: Array, weights: Array) -> float | None:
    """The factor between ``seconds`` that the framework took here and those it takes ``elsewhere``, both by phase.

    The median, each phase by what it weighs. None where too few phases show it, or nothing but noise. One op's
    dispatch, timed in one moment of a calibration, does not stand for it: the machine may have been contended then.
    """
    some = np.flatnonzero(elsewhere > 0.0)
    if len(some) < LEAST_SHOWING:
        return None
    paces = seconds[some] / elsewhere[some]
    order = np.argsort(paces)
    passed = np.cumsum((weights * elsewhere)[some][order])
    pace = float(paces[order][np.searchsorted(passed, 0.5 * passed[-1])])
    return pace if pace > LEAST_PACE else None


def positive_costs(counts: Array, seconds: Array, weights: Array, expected: Array, spread: float) -> Array:
    """The cost of each column of ``counts`` (n x d), none below zero: least squares on ``weights * seconds``.

    What is far off (disturbed) is left out. A cost above 0.0 in ``expected`` counts as one more observed step, the more
    the smaller its relative ``spread``.
    """
    some = np.flatnonzero(expected > 0.0)
    pull = STEP_SPREAD / spread
    held, drawn = np.eye(len(expected))[some] * (pull / expected[some])[:, None], np.full(len(some), pull)
    keep = np.ones(len(seconds), dtype=bool)
    solution: Array = np.zeros(len(expected))
    for _ in range(ROUNDS):
        seen, took = (counts * weights[:, None])[keep], (seconds * weights)[keep]
        none_below_zero = LinearRegression(positive=True, fit_intercept=False)
        none_below_zero.fit(np.vstack([seen, held]), np.concatenate([took, drawn]))
        solution = none_below_zero.coef_
        off = np.abs(counts @ solution - seconds) * weights
        keep = off <= max(FAR_OFF * float(np.median(off)), NEAR)
    return solution


def _beyond_ops(step: StepObservation, model: CostModel) -> list[tuple[Sequence[str], float]]:
    """(names of counts, seconds beyond the ops) of each phase of a step; of the whole where phases were not timed.

    Phases say more than the whole: forward ops, backward ops and updated tensors grow with a network together. Those
    phases that ops are missing of are taken as one.
    """
    beyond = dict(step.gaps)
    if "update" in beyond:
        beyond["update"] -= _priced([op for op in step.ops if op.family == "optimizer"], model)
    phases: list[tuple[Sequence[str], float]] = []
    untimed: list[str] = []
    for phase, names in (("forward", FORWARD), ("backward", BACKWARD), ("update", UPDATE)):
        if phase in beyond:
            phases.append((names, beyond[phase]))
        else:
            untimed += names
    if untimed:
        phases.append((untimed, step.seconds - op_seconds(step, model) - sum(beyond.values())))
    return phases


def op_seconds(step: StepObservation, model: CostModel) -> float:
    """Seconds of a step's ops: as measured, or as priced where they were not.

    Updates are priced: the time they take beyond that of their own probes is added by the step around them.
    """
    missing = [op for op in step.ops if op.seconds is None or op.family == "optimizer"]
    measured = sum(op.seconds * op.count for op in step.ops if op.seconds is not None and op.family != "optimizer")
    return measured + _priced(missing, model)


def _priced(ops: Sequence[OpObservation], model: CostModel) -> float:
    seconds, _, _ = model.price_works([op.work() for op in ops])
    return sum(price * op.count for price, op in zip(seconds, ops, strict=True))
