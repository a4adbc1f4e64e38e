"""Samples -> numbers in the profile. scikit-learn lives here and in ``kernel.py``; only numbers are stored."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.linear_model import LinearRegression

from placer.calibration.floors import fit_floor
from placer.calibration.kernel import OpMatern
from placer.calibration.observation import OpObservation, StepObservation
from placer.costs import CostModel, fitted_features, floor_seconds, inputs_of, op_label
from placer.gaussian_process import covariance, distances
from placer.predict import Z90, doubt
from placer.profile import DeviceFit, FamilyFit, Sample
from placer.timeline import framework_seconds

Array = NDArray[np.float64]

#: Points the residual of one family is learnt from, at most: a price costs time proportional to it.
MOST_POINTS = 480
#: Seconds by which recording may misplace the ends of an op: what makes short ones uncertain.
TIMING_ERROR = 1.5e-6
#: A step whose repetitions spread by more than this counts less.
STEADY = 0.1
#: Inputs are log2 of amounts: half an octave apart is the same shape for all a cost model knows.
SAME = 0.5
#: Points the hyperparameters are chosen on, at most: that costs the cube of it, many times.
HYPERPARAMETER_POINTS = 140
#: Standard deviations from what all others say of it at which a sample is left out.
OUTLIER = 3.0
#: Fewer points than this teach nothing: the family stays at its floor.
LEAST_POINTS = 8
#: What a block says of the framework, next to a network: its branches stand side by side, and are larger than layers.
BLOCK_TRUST = 0.03
#: One step in this many is kept from the first fit, to see how far predictions of unseen steps are off.
HELD_OUT = 4


@dataclass(frozen=True)
class Hyperparameters:
    """What marginal likelihood chose for one family."""

    length_scales: tuple[float, ...]
    op_scale: float
    signal: float
    noise: float


def fit_device(
    observations: Sequence[StepObservation], rates: Mapping[str, float], *, device: str, threads: int,
    tuned: dict[str, Hyperparameters] | None = None,
) -> DeviceFit:  # fmt: skip
    """All numbers of one device: residuals per family, the framework's share, and the interval's constants.

    The interval comes from steps that were held out of a first fit; the fit returned has learnt from all of them.
    ``tuned`` holds hyperparameters by family and takes those chosen here: what varies with what is the same for
    another number of threads, and choosing it is most of the work.
    """
    empty = DeviceFit(device=device, threads=threads, rates=dict(rates), families={}, framework={}, interval={})
    held = [o for i, o in enumerate(observations) if i % HELD_OUT == 0]
    rest = [o for i, o in enumerate(observations) if i % HELD_OUT != 0]
    tuned = {} if tuned is None else tuned
    first = _fit_once(rest, empty, tuned)
    interval = _interval([*held], first)
    return replace(_fit_once(observations, empty, tuned), interval=interval)


def _fit_once(
    observations: Sequence[StepObservation], empty: DeviceFit, tuned: dict[str, Hyperparameters]
) -> DeviceFit:
    points: dict[str, list[tuple[OpObservation, float]]] = {}
    for step in observations:
        for op in step.ops:
            # An optimizer step divides evenly among equal tensors only: its own probes are its samples.
            if op.seconds and (op.family != "optimizer" or step.family == "optimizer"):
                points.setdefault(op.family, []).append((op, step.spread))
    families = {}
    for family, members in points.items():
        if len(members) >= LEAST_POINTS:
            families[family] = _fit_family(family, members, empty, tuned)
    fit = replace(empty, families=families)
    return replace(fit, framework=_fit_framework(observations, fit))


def _fit_family(
    family: str, members: Sequence[tuple[OpObservation, float]], empty: DeviceFit, tuned: dict[str, Hyperparameters]
) -> FamilyFit:
    works = [op.work() for op, _ in members]
    seconds = np.array([op.seconds for op, _ in members])
    # A sample from a step that did not repeat itself says less.
    disturbed = np.array([min(spread, 1.0) for _, spread in members]) ** 2
    parallel = empty.device == "cpu" and empty.threads > 1
    parameters = fit_floor(works, seconds, empty.rates, parallel=parallel)
    x = np.array([inputs_of(work) for work in works])
    floor = np.array([floor_seconds(work, empty, parameters) for work in works])
    y = np.log(seconds / floor)
    labels = [op_label(work) for work in works]
    ops = tuple(sorted(set(labels)))
    index = np.array([ops.index(label) for label in labels])
    x, y, index, own_noise = _merged(x, y, index, (TIMING_ERROR / floor) ** 2 + disturbed)
    # At random, not spread out: the corners of what was sampled are its oddest points, and say least of its middle.
    keep = np.random.default_rng(0).permutation(len(x))[:MOST_POINTS]
    x, y, index, own_noise = x[keep], y[keep], index[keep], own_noise[keep]
    mean = float(np.median(y))
    if family not in tuned:
        some = slice(None, HYPERPARAMETER_POINTS)
        tuned[family] = _tune(x[some], index[some], y[some] - mean, own_noise[some])
    chosen = tuned[family]
    calm = _undisturbed(x, index, y - mean, own_noise, chosen)
    x, y, index, own_noise = x[calm], y[calm], index[calm], own_noise[calm]
    return FamilyFit(
        feature_names=fitted_features(family),
        ops=ops,
        x=tuple(tuple(float(v) for v in row) for row in x),
        op_index=tuple(int(i) for i in index),
        y=tuple(float(v) for v in y),
        point_noise=tuple(float(v) for v in own_noise),
        length_scales=chosen.length_scales,
        op_scale=chosen.op_scale,
        mean=mean,
        signal=chosen.signal,
        noise=chosen.noise,
        parameters=parameters,
    )


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


def _merged(
    x: Array, y: Array, index: NDArray[np.int64], noise: Array
) -> tuple[Array, Array, NDArray[np.int64], Array]:
    """Points of one op closer than ``SAME`` in every input become one, their mean: less noise, fewer points."""
    cells: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(np.round(x / SAME).astype(np.int64)):
        cells.setdefault((int(index[i]), *row.tolist()), []).append(i)
    groups = list(cells.values())
    weights = [1.0 / (noise[g] + 0.02) for g in groups]
    merged_x = np.array([np.average(x[g], axis=0, weights=w) for g, w in zip(groups, weights, strict=True)])
    merged_y = np.array([np.average(y[g], weights=w) for g, w in zip(groups, weights, strict=True)])
    merged_noise = np.array(
        [float(np.average(noise[g], weights=w)) / len(g) for g, w in zip(groups, weights, strict=True)]
    )
    return merged_x, merged_y, index[[g[0] for g in groups]], merged_noise


def _tune(x: Array, index: NDArray[np.int64], y: Array, own_noise: Array) -> Hyperparameters:
    variance = max(float(y.var()), 1e-3)
    kernel = ConstantKernel(min(variance, 1.0), (1e-2, 1.5)) * OpMatern(
        length_scale=np.full(x.shape[1], 8.0), op_scale=1.0
    ) + WhiteKernel(min(0.2 * variance, 0.2), (1e-3, 0.5))
    regressor = GaussianProcessRegressor(kernel, alpha=own_noise + 1e-8, optimizer=_search)
    with warnings.catch_warnings():
        # A length scale at its bound means that a feature does not matter here, which is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regressor.fit(np.column_stack([x, index]), y)
    product, white = regressor.kernel_.k1, regressor.kernel_.k2
    return Hyperparameters(
        length_scales=tuple(float(v) for v in np.atleast_1d(product.k2.length_scale)),
        op_scale=float(product.k2.op_scale),
        signal=float(product.k1.constant_value),
        noise=float(white.noise_level),
    )


def _undisturbed(
    x: Array, index: NDArray[np.int64], y: Array, own_noise: Array, chosen: Hyperparameters
) -> NDArray[np.bool_]:
    """Points that the others do not contradict: one sample that a neighbour disturbed would bend everything around it.

    Leave-one-out errors in closed form (Rasmussen & Williams, 2006, equations 5.10 to 5.12).
    """
    scales = np.asarray(chosen.length_scales)
    k = covariance(distances(x, index, x, index, scales, chosen.op_scale), chosen.signal)
    k[np.diag_indices_from(k)] += chosen.noise + own_noise + 1e-9 * chosen.signal
    inverse = np.linalg.inv(k)
    precision = np.diag(inverse)
    kept: NDArray[np.bool_] = np.abs(inverse @ y) <= OUTLIER * np.sqrt(precision)
    return kept


def _search(objective: Callable[..., Any], start: Array, bounds: Array) -> tuple[Array, float]:
    """L-BFGS-B, stopped early: the last tenths of likelihood change no price and take most of the time."""
    found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": 25})
    return np.asarray(found.x), float(found.fun)


def _fit_framework(observations: Sequence[StepObservation], fit: DeviceFit) -> dict[str, float]:
    """Seconds per forward op, autograd node, module call, ...: what a step takes beyond its ops, by least squares on
    relative errors, no coefficient below zero, steps that are far off (disturbed) left out."""
    model = CostModel(fit)
    names = list(observations[0].counts) if observations else []
    rows, targets, weights = [], [], []
    for step in observations:
        missing = step.seconds - op_seconds(step, model)
        rows.append([step.counts[name] for name in names])
        targets.append(missing)
        trust = 1.0 if step.family == "network" else BLOCK_TRUST
        weights.append(trust / step.seconds / math.hypot(1.0, step.spread / STEADY))
    if len(rows) < 2 * len(names) or not names:
        return {}
    a, b, w = np.array(rows), np.array(targets), np.array(weights)
    keep = np.ones(len(b), dtype=bool)
    solution = np.zeros(len(names))
    for _ in range(3):
        regression = LinearRegression(positive=True, fit_intercept=False)
        regression.fit(a[keep] * w[keep, None], b[keep] * w[keep])
        solution = regression.coef_
        off = np.abs(a @ solution - b) * w
        keep = off <= max(3.0 * float(np.median(off)), 0.02)
    return {name: float(value) for name, value in zip(names, solution, strict=True)}


def op_seconds(step: StepObservation, model: CostModel) -> float:
    """Time of a step's ops: as measured, the price where nothing was."""
    missing = [op for op in step.ops if op.seconds is None]
    priced, _, _ = model.price_works([op.work() for op in missing])
    measured = sum(op.seconds * op.count for op in step.ops if op.seconds is not None)
    return measured + sum(p * op.count for p, op in zip(priced, missing, strict=True))


def predict_step(step: StepObservation, model: CostModel) -> tuple[float, float]:
    """(predicted seconds, sigma of its log from the ops alone) of an observed step."""
    seconds, sigma, _ = model.price_works([op.work() for op in step.ops])
    prices = [price * op.count for op, price in zip(step.ops, seconds, strict=True)]
    total = framework_seconds(step.counts, model.fit.framework) + sum(prices)
    return total, doubt((op.family for op in step.ops), prices, sigma) / max(total, 1e-12)


def _interval(held: Sequence[StepObservation], fit: DeviceFit) -> dict[str, float]:
    """Constants such that nine held-out steps in ten lie within Z90 * hypot(base, ops * sigma) of their prediction.

    ``held_out`` is the error itself that nine in ten stayed below, in log(seconds): for people to read.
    """
    model = CostModel(fit)
    errors, sigmas = [], []
    for step in held:
        predicted, sigma = predict_step(step, model)
        if predicted > 0.0:
            errors.append(abs(math.log(step.seconds / predicted)))
            sigmas.append(sigma)
    if len(errors) < 5:
        return {"base": 0.25, "ops": 1.0}
    e, s = np.array(errors), np.array(sigmas)
    best, result = math.inf, (0.25, 1.0)
    # Errors of one op do not all point the same way: more than their linear sum is never promised.
    for ops in (0.25, 0.5, 0.75, 1.0):
        # The smallest base for which the interval holds nine in ten, then the likeliest such pair.
        needed = np.sqrt(np.maximum((e / Z90) ** 2 - (ops * s) ** 2, 0.0))
        base = max(float(np.quantile(needed, 0.9)), 0.02)
        total = np.hypot(base, ops * s)
        loss = float(np.mean(np.log(total) + 0.5 * (e / total) ** 2))
        if loss < best:
            best, result = loss, (base, ops)
    return {"base": result[0], "ops": result[1], "held_out": float(np.quantile(e, 0.9))}


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
