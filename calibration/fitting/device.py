"""Samples -> numbers in the profile: only numbers are stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from placer.calibration.fitting.difference import Departure
from placer.calibration.fitting.framework import fit_framework
from placer.calibration.fitting.residual import Hyperparameters, Seen, fit_family, transfer_family
from placer.calibration.fitting.transfer import FAMILY_PER_READING, Expectation, compared
from placer.calibration.measuring.observation import OpObservation, StepObservation
from placer.pricing import Z90, CostModel, doubt, framework_seconds, inputs_of, op_label
from placer.profile import DeviceFit, Sample

Array = NDArray[np.float64]

#: Fewer points than this teach nothing: the family stays at its floor.
LEAST_POINTS = 8
#: One step in this many is kept from the first fit, to see how far predictions of unseen steps are off.
HELD_OUT = 4
#: Held-out networks from which on they alone make the interval, and steps of any kind below which nothing does.
ENOUGH_NETWORKS, LEAST_JUDGED = 15, 5
#: Networks that the interval of another machine of the same kind counts for: between two sessions of one machine the
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
            family: transfer_family(family, points.get(family, []), empty, tuned.departures, expected, overall)
            for family in expected.families
        }
    fit = replace(empty, families=families)
    return replace(fit, framework=fit_framework(observations, fit, expected, overall))


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
    same_class: dict[str, float] = {}
    if expected is not None and expected.same_class:
        # At another pace than the other machine's, every family goes at one of its own.
        same_class = dict(expected.fit.interval)
        same_class["base"] = math.hypot(same_class["base"], FAMILY_PER_READING * expected.apart(fit.rates))
    least, judged = (1, networks) if same_class else (LEAST_JUDGED, networks if len(networks) >= ENOUGH_NETWORKS else held)
    model = CostModel(fit)
    predicted = [(step.seconds, *predict_step(step, model)) for step in judged]
    found = np.array([(abs(math.log(seconds / p)), sigma) for seconds, p, sigma in predicted if p > 0.0])
    if len(found) < least:
        return same_class or {"base": 0.25, "ops": 1.0}
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
