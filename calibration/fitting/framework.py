"""What a step takes beyond its ops -> seconds of each count of the framework's own work (see ``placer.pricing.framework``)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from placer.calibration.fitting.transfer import Comparison, Expectation
from placer.calibration.measuring.observation import OpObservation, StepObservation
from placer.pricing import BACKWARD, FORWARD, LEARNT, LONG_FORWARD, UPDATE, CostModel
from placer.profile import DeviceFit

Array = NDArray[np.float64]

#: A step whose repetitions spread by more than this counts less.
STEADY = 0.1
#: What a block says of the framework, next to a network: its branches stand side by side, and are larger than layers.
BLOCK_TRUST = 0.03
#: Relative error of an observed step, and relative difference of a coefficient between two machines, of any kind and of
#: one kind.
STEP_SPREAD, FRAMEWORK_SPREAD, KIN_FRAMEWORK_SPREAD = 0.1, 0.4, 0.1
#: Fewest phases that show a pace. Below the least one they show noise, or a clock that does not run for the framework.
LEAST_SHOWING, LEAST_PACE = 8, 0.1
#: Rounds of the fit: after each, what is this many medians off (and more than this share of a step) is left out.
ROUNDS, FAR_OFF, NEAR = 3, 3.0, 0.02


def fit_framework(
    observations: Sequence[StepObservation], fit: DeviceFit, expected: Expectation | None, overall: Comparison | None
) -> dict[str, float]:
    """Seconds per forward op, autograd node, module call, ...: what a step on the CPU takes beyond its ops.

    ``fit`` prices the ops. What another machine needs, at this one's speed, holds coefficients that the steps hardly
    tell apart. Empty where there are too few phases for so many numbers, and no other machine's that hold them.
    """
    model = CostModel(fit)
    elsewhere = expected.fit.framework if expected is not None else {}
    names = learnt(observations, elsewhere)
    rows, targets, weights = [], [], []
    for step in observations:
        trust = 1.0 if step.family == "network" else BLOCK_TRUST
        for counted, missing in _beyond_ops(step, model):
            row = [step.counts.get(name, 0.0) if name in counted else 0.0 for name in names]
            if any(row):
                rows.append(row)
                targets.append(missing)
                weights.append(trust * weight_of(step))
    if not rows or (not elsewhere and len(rows) < 2 * len(names)):
        return {}
    counts, seconds, weigh = np.array(rows), np.array(targets), np.array(weights)
    there, spread = np.zeros(len(names)), FRAMEWORK_SPREAD
    if expected is not None and overall is not None:
        seconds *= math.exp(overall.believed - overall.pace)  # at the pace that the ops are priced at
        there = np.array([elsewhere.get(name, 0.0) for name in names])
        if expected.same_class:
            # What a machine of this kind was found to do without at length, a minute does not find either.
            counts *= there > 0.0
            there *= math.exp(overall.believed)
            spread = KIN_FRAMEWORK_SPREAD
        else:
            dispatch = fit.rates["dispatch_seconds"] / expected.fit.rates["dispatch_seconds"]
            there *= pace_shown(counts @ there, seconds, weigh) or dispatch
    return dict(zip(names, positive_costs(counts, seconds, weigh, there, spread).tolist(), strict=True))


def learnt(observations: Iterable[StepObservation], elsewhere: Mapping[str, float]) -> list[str]:
    """What of the framework ran in some step at all, or has a cost ``elsewhere``; nothing is learnt of the rest.

    A profile fitted before has costs of counts that nothing new is learnt of; without them its others would be too few.
    """
    counted = {name for step in observations for name, count in step.counts.items() if count}
    before = [name for name in LONG_FORWARD if name in elsewhere]
    return [*(name for name in LEARNT if name in counted or name in elsewhere), *before]


def weight_of(step: StepObservation) -> float:
    """Of an error in seconds: errors count relative to their step, less where its repetitions spread."""
    return 1.0 / step.seconds / math.hypot(1.0, step.spread / STEADY)


def pace_shown(foreseen: Array, seconds: Array, weights: Array) -> float | None:
    """Times of what the framework takes elsewhere (``foreseen``, by phase) that its phases took here: ``seconds``.

    The median, each phase by what it weighs. None where too few show it, or nothing but noise. One op's dispatch, timed
    in one moment of a calibration, does not stand for it: that moment may have been a neighbour's.
    """
    some = np.flatnonzero(foreseen > 0.0)
    if len(some) < LEAST_SHOWING:
        return None
    paces = seconds[some] / foreseen[some]
    order = np.argsort(paces)
    passed = np.cumsum((weights * foreseen)[some][order])
    pace = float(paces[order][np.searchsorted(passed, 0.5 * passed[-1])])
    return pace if pace > LEAST_PACE else None


def positive_costs(counts: Array, seconds: Array, weights: Array, expected: Array, spread: float) -> Array:
    """The cost of each column of ``counts`` (n x d), none below zero: least squares on ``weights * seconds``.

    What is far off (disturbed) is left out. Each cost that is ``expected`` (0.0: nothing is) is drawn there as an
    observed step would draw it, the more the smaller its relative ``spread``.
    """
    some = np.flatnonzero(expected > 0.0)
    pull = STEP_SPREAD / spread
    held, drawn = np.eye(len(expected))[some] * (pull / expected[some])[:, None], np.full(len(some), pull)
    keep = np.ones(len(seconds), dtype=bool)
    solution = np.zeros(len(expected))
    for _ in range(ROUNDS):
        regression = LinearRegression(positive=True, fit_intercept=False)
        regression.fit(
            np.vstack([(counts * weights[:, None])[keep], held]), np.concatenate([(seconds * weights)[keep], drawn])
        )
        solution = np.asarray(regression.coef_, dtype=np.float64)
        off = np.abs(counts @ solution - seconds) * weights
        keep = off <= max(FAR_OFF * float(np.median(off)), NEAR)
    return solution


def _beyond_ops(step: StepObservation, model: CostModel) -> list[tuple[Sequence[str], float]]:
    """(what was counted, seconds beyond the ops) of each phase of a step, of the whole where they were not told apart.

    Apart they tell more: forward ops, backward ops and updated tensors grow with a network in step. Phases that ops are
    missing of are one.
    """
    beyond = dict(step.gaps)
    if "update" in beyond:
        beyond["update"] -= _priced([op for op in step.ops if op.family == "optimizer"], model)
    phases: list[tuple[Sequence[str], float]] = []
    torn: list[str] = []
    for phase, names in (("forward", (*FORWARD, *LONG_FORWARD)), ("backward", BACKWARD), ("update", UPDATE)):
        if phase in beyond:
            phases.append((names, beyond[phase]))
        else:
            torn += names
    if torn:
        phases.append((torn, step.seconds - op_seconds(step, model) - sum(beyond.values())))
    return phases


def op_seconds(step: StepObservation, model: CostModel) -> float:
    """Time of a step's ops: as measured, the price where nothing was.

    Updates are priced: what they take longer here than in their own probes is what a step around them adds.
    """
    missing = [op for op in step.ops if op.seconds is None or op.family == "optimizer"]
    measured = sum(op.seconds * op.count for op in step.ops if op.seconds is not None and op.family != "optimizer")
    return measured + _priced(missing, model)


def _priced(ops: Sequence[OpObservation], model: CostModel) -> float:
    seconds, _, _ = model.price_works([op.work() for op in ops])
    return sum(price * op.count for price, op in zip(seconds, ops, strict=True))
