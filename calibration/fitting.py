"""Samples -> numbers in the profile. scikit-learn lives here and in ``kernel.py``; only numbers are stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from placer.calibration.difference import Departure
from placer.calibration.observation import OpObservation, StepObservation
from placer.calibration.residual import Hyperparameters, Seen, carry_family, fit_family
from placer.calibration.transfer import FAMILY_PER_BEAT, Comparison, Expectation, compared
from placer.costs import CostModel, inputs_of, op_label
from placer.framework import BACKWARD, FORWARD, LEARNT, UPDATE, framework_seconds
from placer.predict import Z90, doubt
from placer.profile import DeviceFit, Sample

Array = NDArray[np.float64]

#: A step whose repetitions spread by more than this counts less.
STEADY = 0.1
#: Fewer points than this teach nothing: the family stays at its floor.
LEAST_POINTS = 8
#: What a block says of the framework, next to a network: its branches stand side by side, and are larger than layers.
BLOCK_TRUST = 0.03
#: Relative error of an observed step, and relative difference of a framework coefficient between two machines, of any
#: kind and of one kind.
STEP_SPREAD, FRAMEWORK_SPREAD, KIN_FRAMEWORK_SPREAD = 0.1, 0.4, 0.1
#: Times of what another machine's framework takes that this one's takes at the least: noise may say less than nothing.
LEAST_PACE = 0.1
#: One step in this many is kept from the first fit, to see how far predictions of unseen steps are off.
HELD_OUT = 4
#: Held-out networks from which on they alone make the interval, and steps of any kind below which nothing does.
ENOUGH_NETWORKS, LEAST_JUDGED = 15, 5
#: Networks that the interval of another machine of the same kind counts for: between two sittings of one machine the
#: errors differ by a fifth, and so many show no more.
NETWORKS_ELSEWHERE = 40


@dataclass(frozen=True)
class Tuned:
    """Hyperparameters by family: chosen once, used again where only the number of threads is another."""

    residuals: dict[str, Hyperparameters] = field(default_factory=dict)
    departures: dict[str, Departure] = field(default_factory=dict)


def fit_device(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int,
    tuned: Tuned | None = None, expected: Expectation | None = None,
) -> DeviceFit:  # fmt: skip
    """All numbers of one device: residuals per family, the framework's share, and the interval's constants.

    The interval comes from steps that were held out of a first fit; the fit returned has learnt from all of them.
    ``tuned`` holds hyperparameters by family and takes those chosen here: what varies with what is the same for
    another number of threads, and choosing it is most of the work. ``expected`` is what another machine knows.
    """
    reference = expected.name if expected is not None else ""
    empty = DeviceFit(device, threads, dict(rates), families={}, framework={}, interval={}, reference=reference)
    held = [o for i, o in enumerate(observations) if i % HELD_OUT == 0]
    rest = [o for i, o in enumerate(observations) if i % HELD_OUT != 0]
    tuned = tuned or Tuned()
    first = _fit_once(rest, empty, tuned, expected)
    interval = _interval(held, first, expected)
    return replace(_fit_once(observations, empty, tuned, expected), interval=interval)


def _fit_once(
    observations: Sequence[StepObservation],
    empty: DeviceFit,
    tuned: Tuned,
    expected: Expectation | None,
) -> DeviceFit:
    points: dict[str, list[Seen]] = {}
    for moment, step in enumerate(observations):
        for op in step.ops:
            # An optimizer step divides evenly among equal tensors only: its own probes are its samples.
            if op.seconds and (op.family != "optimizer" or step.family == "optimizer"):
                points.setdefault(op.family, []).append(Seen(op, step.spread, moment))
    families = {
        family: fit_family(family, members, empty, tuned.residuals)
        for family, members in points.items()
        if len(members) >= LEAST_POINTS and (expected is None or family not in expected.families)
    }
    overall = None
    if expected is not None:
        ops = [member.op for members in points.values() for member in members]
        overall = compared(ops, expected, len(observations), empty.rates)
        families |= {
            family: carry_family(family, points.get(family, []), empty, tuned.departures, expected, overall)
            for family in expected.families
        }
    fit = replace(empty, families=families)
    return replace(fit, framework=_fit_framework(observations, fit, expected, overall))


def spread_out(x: Array, index: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Indices of at most ``most`` points, each the farthest from those before it: every corner of the samples is kept.

    Greedy k-center (Gonzalez, 1985): within a factor of two of the best cover.
    """
    scaled = x / np.maximum(x.std(0), 1e-9)
    distance = np.full(len(x), np.inf)
    chosen = [0]
    while len(chosen) < min(most, len(x)):
        last = chosen[-1]
        step = ((scaled - scaled[last]) ** 2).sum(1) + 2.0 * (index != index[last])
        distance = np.minimum(distance, step)
        distance[last] = -1.0
        chosen.append(int(np.argmax(distance)))
    return np.array(chosen)


def _fit_framework(
    observations: Sequence[StepObservation], fit: DeviceFit, expected: Expectation | None, overall: Comparison | None
) -> dict[str, float]:
    """Seconds per forward op, autograd node, module call, ...: what a step takes beyond its ops.

    Least squares on errors relative to the step, no coefficient below zero, what is far off (disturbed) left out. What
    another machine needs, at this one's speed, holds coefficients that the steps hardly tell apart.
    """
    model = CostModel(fit)
    elsewhere = expected.fit.framework if expected is not None else {}
    names = [name for name in LEARNT if name in elsewhere or name in counted_somewhere(observations)]
    rows, targets, weights = [], [], []
    for step in observations:
        trust = 1.0 if step.family == "network" else BLOCK_TRUST
        for counted, missing in _beyond_ops(step, model):
            row = [step.counts.get(name, 0.0) if name in counted else 0.0 for name in names]
            if not any(row):
                continue
            rows.append(row)
            targets.append(missing)
            weights.append(trust / step.seconds / math.hypot(1.0, step.spread / STEADY))
    # A few seconds tell too few phases for so many numbers, unless another machine's hold them.
    if not names or not rows or (not elsewhere and len(rows) < 2 * len(names)):
        return {}
    a, b, w = np.array(rows), np.array(targets), np.array(weights)
    there = np.zeros(len(names))
    if expected is not None and overall is not None:
        b *= math.exp(overall.believed - overall.pace)  # at the pace that the ops are priced at
        there = np.array([elsewhere.get(name, 0.0) for name in names])
        if expected.kin:
            # What a machine of this kind was found to do without at length, a minute does not find either.
            a *= there > 0.0
        there *= _framework_pace(a @ there, b, w, fit, expected, overall)
    held, drawn = _held(there, expected is not None and expected.kin)
    keep = np.ones(len(b), dtype=bool)
    solution = np.zeros(len(names))
    for _ in range(3):
        regression = LinearRegression(positive=True, fit_intercept=False)
        regression.fit(np.vstack([a[keep] * w[keep, None], held]), np.concatenate([b[keep] * w[keep], drawn]))
        solution = regression.coef_
        off = np.abs(a @ solution - b) * w
        keep = off <= max(3.0 * float(np.median(off)), 0.02)
    return {name: float(value) for name, value in zip(names, solution, strict=True)}


def counted_somewhere(observations: Sequence[StepObservation]) -> list[str]:
    """What of the framework ran in some step at all; nothing is learnt of the rest."""
    return [name for name in LEARNT if any(step.counts.get(name, 0.0) for step in observations)]


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
    for phase, names in (("forward", FORWARD), ("backward", BACKWARD), ("update", UPDATE)):
        if phase in beyond:
            phases.append((names, beyond[phase]))
        else:
            torn += names
    if torn:
        phases.append((torn, step.seconds - op_seconds(step, model) - sum(beyond.values())))
    return phases


def _framework_pace(
    foreseen: Array, seconds: Array, weights: Array, fit: DeviceFit, expected: Expectation, overall: Comparison
) -> float:
    """Times of what the framework takes on another machine that it takes here.

    That is the pace of the ops between machines of one kind. Any other's shows in the phases measured here, each of
    which took ``seconds`` beyond its ops where the other's framework would have taken ``foreseen``: the median, by what
    they weigh. One op's dispatch, timed in one moment of the calibration, stands for it only where there are too few.
    """
    if expected.kin:
        return math.exp(overall.believed)
    some = np.flatnonzero(foreseen > 0.0)
    if len(some) < LEAST_POINTS:
        return fit.rates["dispatch_seconds"] / expected.fit.rates["dispatch_seconds"]
    paces = seconds[some] / foreseen[some]
    order = np.argsort(paces)
    passed = np.cumsum((weights * foreseen)[some][order])
    return max(float(paces[order][np.searchsorted(passed, 0.5 * passed[-1])]), LEAST_PACE)


def _held(there: Array, kin: bool) -> tuple[Array, Array]:
    """Rows and targets that draw each coefficient towards what is expected of it, as an observed step would."""
    some = np.flatnonzero(there > 0.0)
    pull = STEP_SPREAD / (KIN_FRAMEWORK_SPREAD if kin else FRAMEWORK_SPREAD)
    return np.eye(len(there))[some] * (pull / there[some])[:, None], np.full(len(some), pull)


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


def predict_step(step: StepObservation, model: CostModel) -> tuple[float, float]:
    """(predicted seconds, sigma of its log from the ops alone) of an observed step."""
    seconds, sigma, _ = model.price_works([op.work() for op in step.ops])
    prices = [price * op.count for op, price in zip(step.ops, seconds, strict=True)]
    total = framework_seconds(step.counts, model.fit.framework) + sum(prices)
    return total, doubt((op.family for op in step.ops), prices, sigma) / max(total, 1e-12)


def _interval(held: Sequence[StepObservation], fit: DeviceFit, expected: Expectation | None) -> dict[str, float]:
    """Constants such that nine held-out steps in ten lie within Z90 * hypot(base, ops * sigma) of their prediction.

    Networks alone count where there are enough of them, since people ask for networks; blocks show how far a single op
    can be off. ``held_out`` is the error itself that nine in ten stayed below, in log(seconds): for people to read.
    Where a machine of this kind knows these, they change as far as the errors here are believed.
    """
    networks = [step for step in held if step.family == "network"]
    kin: dict[str, float] = {}
    if expected is not None and expected.kin:
        # At another pace than the other machine's, every family goes at one of its own.
        kin = dict(expected.fit.interval)
        kin["base"] = math.hypot(kin["base"], FAMILY_PER_BEAT * expected.apart(fit.rates))
    least, judged = (1, networks) if kin else (LEAST_JUDGED, networks if len(networks) >= ENOUGH_NETWORKS else held)
    model = CostModel(fit)
    predicted = [(step.seconds, *predict_step(step, model)) for step in judged]
    found = np.array([(abs(math.log(seconds / p)), sigma) for seconds, p, sigma in predicted if p > 0.0])
    if len(found) < least:
        return kin or {"base": 0.25, "ops": 1.0}
    errors, sigmas = found.T
    if kin:
        factor = _widening(kin["base"], kin["ops"], errors, sigmas)
        widened = {name: constant * factor for name, constant in kin.items()}
        return {**widened, "ops": min(widened["ops"], 1.0)}
    base, ops = _likeliest(errors, sigmas)
    return {"base": base, "ops": ops, "held_out": float(np.quantile(errors, 0.9))}


def _likeliest(errors: Array, sigmas: Array) -> tuple[float, float]:
    """Of the pairs whose interval holds nine errors in ten, the likeliest."""
    best, result = math.inf, (0.25, 1.0)
    # Errors of one op do not all point the same way: more than their linear sum is never promised.
    for ops in (0.25, 0.5, 0.75, 1.0):
        needed = np.sqrt(np.maximum((errors / Z90) ** 2 - (ops * sigmas) ** 2, 0.0))
        base = max(float(np.quantile(needed, 0.9)), 0.02)
        total = np.hypot(base, ops * sigmas)
        loss = float(np.mean(np.log(total) + 0.5 * (errors / total) ** 2))
        if loss < best:
            best, result = loss, (base, ops)
    return result


def _widening(base: float, ops: float, errors: Array, sigmas: Array) -> float:
    """How much wider an interval than a machine of this kind has, or narrower, as the errors say and are believed.

    The ninth of ten among twenty errors is itself off by a quarter; the other machine's rest on many more.
    """
    seen = float(np.quantile(errors / (Z90 * np.hypot(base, ops * sigmas)), 0.9))
    return float(max(seen, 0.1) ** (len(errors) / (len(errors) + NETWORKS_ELSEWHERE)))


def samples(observations: Sequence[StepObservation], *, most: int) -> list[Sample]:
    """The measured points worth keeping in a profile: at most ``most`` of each family, spread over their shapes."""
    by_family: dict[str, list[tuple[StepObservation, OpObservation]]] = {}
    for step in observations:
        for op in step.ops:
            if op.seconds:
                by_family.setdefault(op.family, []).append((step, op))
    kept = []
    for members in by_family.values():
        works = [op.work() for _, op in members]
        names = sorted({op_label(work) for work in works})
        index = np.array([names.index(op_label(work)) for work in works])
        for i in spread_out(np.array([inputs_of(work) for work in works]), index, most):
            step, op = members[i]
            assert op.seconds is not None
            kept.append(Sample(step.device, step.threads, op.family, op_label(op.work()), op.features, op.seconds,
                               0.0 if step.device == "cpu" else op.host_seconds, op.spread, op.count))  # fmt: skip
    return kept
