"""Fits all numbers of a CPU to its observed steps: families, the framework's share, and the interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from placer.calibration.fitting.family import MeasuredOp, fit_family, ops_by_family
from placer.calibration.fitting.gaussian import Hyperparameters
from placer.calibration.fitting.moments import Moments, at_middle, moments_of
from placer.calibration.fitting.transfer import (
    FAMILY_PER_PACE,
    Comparison,
    DifferenceHyperparameters,
    Expectation,
    compare,
    transfer_family,
)
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.pricing import BACKWARD, FORWARD, LEARNT, LONG_STEPS, UPDATE, Z90, CostModel, doubt, framework_seconds
from placer.profile import DeviceFit, FamilyFit

#: Fewer ops than this teach nothing: the family stays at its floor.
LEAST_POINTS = 8


@dataclass(frozen=True)
class ChosenHyperparameters:
    """Hyperparameters by family: of residuals, and of differences to another machine.

    They are chosen once and used again for other steps, or another number of threads: what varies with what is the same
    then, and choosing them is most of the work.
    """

    residuals: dict[str, Hyperparameters] = field(default_factory=dict)
    differences: dict[str, DifferenceHyperparameters] = field(default_factory=dict)


def fit_families(
    measured: Mapping[str, Sequence[MeasuredOp]], empty: DeviceFit, chosen: ChosenHyperparameters,
    transfer_from: tuple[Expectation, Comparison] | None,
) -> dict[str, FamilyFit]:  # fmt: skip
    """The fit of each family with enough ops, and of all that another machine knows (``transfer_from``).

    ``empty`` has the device's rates. ``chosen`` is used, and takes what is chosen here. Linear algebra runs on one
    thread: sums taken by several differ in their last digits, and on matrices of these sizes threads cost more than
    they give.
    """
    known = transfer_from[0].families if transfer_from is not None else {}
    found: dict[str, FamilyFit] = {}
    with threadpool_limits(limits=1, user_api="blas"):
        for family, ops in measured.items():
            if len(ops) >= LEAST_POINTS and family not in known:
                found[family], used = fit_family(family, ops, empty, chosen.residuals.get(family))
                chosen.residuals[family] = used
        for family in known:
            assert transfer_from is not None
            ops, before = measured.get(family, ()), chosen.differences.get(family)
            found[family], difference = transfer_family(family, ops, empty, before, *transfer_from)
            if difference is not None:
                chosen.differences[family] = difference
    return found


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
    observations: Sequence[StepObservation], fit: DeviceFit, transfer_from: tuple[Expectation, Comparison] | None
) -> dict[str, float]:
    """Seconds per forward op, autograd node, module call, ...: what a step on the CPU takes beyond its ops.

    ``fit`` prices the ops. Coefficients that the steps hardly tell apart are held near those of another machine
    (``transfer_from``), at this one's speed. Empty where there are too few phases for so many numbers, and no other
    machine that holds them.
    """
    model = CostModel(fit)
    elsewhere = transfer_from[0].fit.framework if transfer_from is not None else {}
    names = counts_to_fit(observations, elsewhere)
    rows, targets, weights = [], [], []
    for step in observations:
        trust = 1.0 if step.family == "network" else BLOCK_TRUST
        for counted, missing in _beyond_ops(step, model):
            row = [step.counts.get(name, 0.0) if name in counted else 0.0 for name in names]
            if any(row):
                rows.append(row)
                targets.append(missing)
                weights.append(trust * step_weight(step))
    if not rows or (not elsewhere and len(rows) < 2 * len(names)):
        return {}
    counts, seconds, weigh = np.array(rows), np.array(targets), np.array(weights)
    there, spread = np.zeros(len(names)), OTHER_CLASS_SPREAD
    if transfer_from is not None:
        expected, overall = transfer_from
        seconds *= math.exp(overall.believed - overall.pace)  # at the pace that the ops are priced at
        there = np.array([elsewhere.get(name, 0.0) for name in names])
        if expected.same_class:
            # What took no time on a machine of this class, measured at length, takes none here.
            counts *= there > 0.0
            there *= math.exp(overall.believed)
            spread = SAME_CLASS_SPREAD
        else:
            dispatch = fit.rates["dispatch_seconds"] / expected.fit.rates["dispatch_seconds"]
            there *= measured_pace(counts @ there, seconds, weigh) or dispatch
    return dict(zip(names, positive_costs(counts, seconds, weigh, there, spread).tolist(), strict=True))


def counts_to_fit(observations: Iterable[StepObservation], elsewhere: Mapping[str, float]) -> list[str]:
    """The counts that are not zero in some step, or have a cost ``elsewhere``: the others cannot be fitted."""
    counted = {name for step in observations for name, count in step.counts.items() if count}
    return [name for name in LEARNT if name in counted or name in elsewhere]


def step_weight(step: StepObservation) -> float:
    """The weight of an error in seconds: errors count relative to their step, less where its repetitions spread."""
    return 1.0 / step.seconds / math.hypot(1.0, step.spread / STEADY)


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
        solution, _ = nnls(np.vstack([seen, held]), np.concatenate([took, drawn]))
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


#: Held-out networks from which on they alone make the interval, and steps of any kind below which nothing does.
ENOUGH_NETWORKS, LEAST_JUDGED = 15, 5
#: The interval where nothing says anything about it.
UNKNOWN = {"base": 0.25, "ops": 1.0}
#: Networks that the interval of another machine of the same class counts for: between two measurement sessions of one
#: machine the errors differ by a fifth, and so many show no more.
NETWORKS_ELSEWHERE = 40


def predict_step(step: StepObservation, model: CostModel) -> tuple[float, float]:
    """(predicted seconds, sigma of its log from the ops alone) of an observed step."""
    seconds, sigma, _ = model.price_works([op.work() for op in step.ops])
    prices = [price * op.count for op, price in zip(step.ops, seconds, strict=True)]
    total = framework_seconds(step.counts, model.fit.framework) + sum(prices)
    return total, doubt((op.family for op in step.ops), prices, sigma) / max(total, 1e-12)


def fit_interval(
    held: Sequence[StepObservation], fit: DeviceFit, transfer_from: tuple[Expectation, Comparison] | None,
    spread: float = 0.0,
) -> dict[str, float]:  # fmt: skip
    """Constants such that nine held-out steps in ten lie within Z90 * hypot(base, ops * sigma) of their prediction.

    Networks alone count where there are enough of them, since people ask for networks; blocks show how far a single op
    can be off. ``held_out`` is the error itself that nine in ten stayed below, in log(seconds): for people to read.
    Where a machine of the same class knows these, what this one's moments differ by (``spread``) is added, and they
    change as far as the errors here are believed.
    """
    networks = [step for step in held if step.family == "network"]
    same_class: dict[str, float] = {}
    if transfer_from is not None and transfer_from[1].same_class:
        expected, overall = transfer_from
        same_class = dict(expected.fit.interval)
        # At another pace than the other machine's, every family has one of its own.
        added = math.hypot(FAMILY_PER_PACE * overall.believed, spread)
        same_class["base"] = math.hypot(same_class["base"], added)
        if "held_out" in same_class:
            same_class["held_out"] = math.hypot(same_class["held_out"], Z90 * added)
        least, judged = 1, networks
    else:
        least, judged = LEAST_JUDGED, networks if len(networks) >= ENOUGH_NETWORKS else list(held)
    model = CostModel(fit)
    predicted = [(step.seconds, *predict_step(step, model)) for step in judged]
    found = np.array([(abs(math.log(seconds / p)), sigma) for seconds, p, sigma in predicted if p > 0.0])
    if len(found) < least:
        return same_class or dict(UNKNOWN)
    errors, sigmas = found.T
    if same_class:
        factor = _widening(same_class["base"], same_class["ops"], errors, sigmas)
        widened = {name: constant * factor for name, constant in same_class.items()}
        return {**widened, "ops": min(widened["ops"], 1.0)}
    base, ops = _likeliest(errors, sigmas)
    return {"base": base, "ops": ops, "held_out": float(np.quantile(errors, 0.9))}


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


#: One step in this many is kept from the first fit, to see how far predictions of unseen steps are off.
HELD_OUT = 4


def fit_device(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int,
    chosen: ChosenHyperparameters | None = None, expected: Expectation | None = None, step_seconds: float = 0.15,
) -> DeviceFit:  # fmt: skip
    """All numbers of a CPU: residuals per family, the framework's share, and the interval's constants.

    The interval comes from steps that were held out of a first fit; the fit returned has learnt from all of them.
    ``chosen`` holds hyperparameters from a fit before, and takes those chosen here. ``expected`` is what is known of
    another machine. ``step_seconds``: what measuring one step took. What is learnt is the middle of the moments; what
    they differ by is part of the interval, and its ``moment`` on its own.
    """
    reference = expected.name if expected is not None else ""
    empty = DeviceFit(device, threads, dict(rates), families={}, framework={}, interval={}, reference=reference)
    chosen = chosen or ChosenHyperparameters()
    # What a step is expected to take, a machine of the same class knows; else a first fit does, as far as it can.
    first = None
    if expected is not None and expected.same_class:
        model = CostModel(expected.fit)
    else:
        first = _fit_once(split(observations)[1], empty, chosen, expected, Moments())
        model = CostModel(first[0])

    def predict(step: StepObservation) -> float:
        return predict_step(step, model)[0]

    moments = moments_of(observations, predict, step_seconds)
    steady = at_middle(observations, predict, moments)
    held, rest = split(steady)
    if first is None or moments.long_steps > 0.0:
        first = _fit_once(rest, empty, chosen, expected, moments)
    interval = fit_interval(held, *first, moments.spread)
    found, _ = _fit_once(steady, empty, chosen, expected, moments)
    if moments.long_steps > 0.0:
        found = replace(found, rates={**rates, LONG_STEPS: math.exp(moments.long_steps)})
    return replace(found, interval={**interval, "moment": moments.spread})


def split(observations: Sequence[StepObservation]) -> tuple[list[StepObservation], list[StepObservation]]:
    """(the steps that are held out of a first fit, all others)."""
    held = [step for i, step in enumerate(observations) if i % HELD_OUT == 0]
    return held, [step for i, step in enumerate(observations) if i % HELD_OUT != 0]


def fit_ops(
    observations: Sequence[StepObservation], empty: DeviceFit, chosen: ChosenHyperparameters,
    expected: Expectation | None, moments: Moments,
) -> tuple[DeviceFit, tuple[Expectation, Comparison] | None]:  # fmt: skip
    """(``empty`` with the residuals of all families, what other machine they were transferred from and how)."""
    measured = ops_by_family(observations)
    overall = None
    if expected is not None:
        ops = [one.op for family in measured.values() for one in family]
        overall = compare(ops, expected, len(observations), moments)
    transfer_from = (expected, overall) if expected is not None and overall is not None else None
    return replace(empty, families=fit_families(measured, empty, chosen, transfer_from)), transfer_from


def of_nearest_pace(
    candidates: Sequence[Expectation], observations: Sequence[StepObservation], step_seconds: float
) -> Expectation | None:
    """Of machines of one class, some of them contended while they were measured, the one nearest to these steps."""

    def apart(candidate: Expectation) -> float:
        model = CostModel(candidate.fit)
        return abs(moments_of(observations, lambda step: predict_step(step, model)[0], step_seconds).pace or 0.0)

    return min(candidates, key=apart, default=None) if len(candidates) != 1 else candidates[0]


def _fit_once(
    observations: Sequence[StepObservation], empty: DeviceFit, chosen: ChosenHyperparameters,
    expected: Expectation | None, moments: Moments,
) -> tuple[DeviceFit, tuple[Expectation, Comparison] | None]:  # fmt: skip
    fit, transfer_from = fit_ops(observations, empty, chosen, expected, moments)
    return replace(fit, framework=fit_framework(observations, fit, transfer_from)), transfer_from
