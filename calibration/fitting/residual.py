"""Fits one op family: a physical floor, and a Gaussian process on what the floor misses."""

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

from placer.calibration.fitting.difference import Compared, Departure, Difference
from placer.calibration.fitting.floors import fit_floor
from placer.calibration.fitting.kernel import OpMatern
from placer.calibration.fitting.outliers import uncontradicted
from placer.calibration.fitting.transfer import Comparison, Expectation
from placer.calibration.measuring.observation import OpObservation
from placer.pricing import (
    ARITHMETIC_TOLD,
    LOOPS_TOLD,
    Work,
    covariance,
    distances,
    fitted_features,
    floor_parts,
    inputs_of,
    op_label,
    with_weights,
)
from placer.profile import DeviceFit, FamilyFit

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

#: Points the residual of one family is kept as, at most: reading and pricing cost time proportional to them, and a
#: calibration time proportional to their cube. Only where shapes vary in many ways, or ops are many, do more of them
#: price steps closer.
MOST_POINTS = 480
MORE_POINTS = {
    "elementwise": 1000, "matmul": 1500, "convolution": 1500, "convolution_backward": 1500, "indexing": 1500,
    "recurrent": 1500, "attention": 1500,
}  # fmt: skip
#: Ops measured here that are added to the points of a other_class: shapes of its own may be fast or slow.
OWN_POINTS = 200
#: Seconds by which recording may misplace the ends of an op, its cost known: what makes short ones uncertain.
TIMING_ERROR = 0.4e-6
#: Inputs are log2 of amounts: half an octave apart is the same shape for all a cost model knows.
SAME = 0.5
#: Variance of log(seconds) of two ops that are the same for all a cost model knows, roughly.
SCATTER = 0.02
#: Points that are looked at together for those that the others contradict: that costs the cube of their number.
LOOKED_AT = 2000
#: Points the hyperparameters are chosen on: a share of all, since that costs the cube of it many times over; few would
#: take chance for length scales.
HYPERPARAMETER_SHARE, LEAST_TUNED, MOST_TUNED = 0.1, 140, 800
#: Variance of a carried point that its doubt does not explain: what keeps the covariance well-conditioned.
NUGGET = 0.002


@dataclass(frozen=True)
class Hyperparameters:
    """What marginal likelihood chose for one family."""

    length_scales: tuple[float, ...]
    op_scale: float
    signal: float
    noise: float


@dataclass(frozen=True)
class Seen:
    """One op as it was measured: the spread of its step's repetitions, and which step of the calibration it was."""

    op: OpObservation
    spread: float
    moment: int


@dataclass(frozen=True)
class Measured:
    """Ops, their seconds, and variances of log(seconds) beyond what recording adds."""

    works: tuple[Work, ...]
    seconds: Array
    noise: Array


@dataclass(frozen=True)
class Points:
    """What a Gaussian process is fitted to: inputs (n x d), op indices, targets, and variances beyond its own noise."""

    x: Array
    ops: Indices
    y: Array
    noise: Array

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, some: Any) -> Points:
        return Points(self.x[some], self.ops[some], self.y[some], self.noise[some])


def fit_family(family: str, members: Sequence[Seen], empty: DeviceFit, tuned: dict[str, Hyperparameters]) -> FamilyFit:
    """The fit of one family from its ops.

    ``empty`` has the device's rates. Hyperparameters are taken from ``tuned``, or chosen and left there.
    """
    return with_weights(_fit(family, _measured(members), empty, tuned))


def transfer_family(
    family: str,
    members: Sequence[Seen],
    empty: DeviceFit,
    departures: dict[str, Departure],
    expected: Expectation,
    overall: Comparison,
) -> FamilyFit:
    """The fit of one family that another machine knows, from how this one differs where ``members`` were measured.

    ``departures`` has what was chosen for this family before, or takes what is chosen here.
    """
    known, there = expected.families[family], expected.points(family)
    same_class = overall.same_class
    here = _measured(members)
    labels = tuple(sorted({op_label(work) for work in here.works} | set(known.ops)))
    # A machine of one's kind keeps the points and the floor of the other: fitted anew, what lies between them would
    # change by more than a minute can tell.
    some = np.random.default_rng(0).permutation(len(members))[: 0 if same_class else OWN_POINTS]
    works = (*there, *(here.works[i] for i in some))
    mean, doubt = np.full(len(works), overall.pace), np.full(len(works), overall.class_distance.family_pace)
    if members:
        difference = Difference(
            Compared(
                *_inputs(here.works, labels),
                moments=np.array([float(member.moment) for member in members]),
                y=np.log(here.seconds) - expected.log_seconds(here.works),
                noise=(TIMING_ERROR / here.seconds) ** 2 + here.noise,
            ),
            known,
            overall.pace,
            overall.class_distance,
            departures.get(family),
        )
        departures[family] = difference.departure
        mean, doubt = difference.predict(*_inputs(works, labels))
    # The pace of all ops is a minute's in part. How a family departs from it is not, as far as it was found to.
    shift = mean + (overall.believed - overall.pace)
    if same_class:
        found = replace(known, y=known.y + shift, mean=known.mean + float(np.median(shift)))
    else:
        carried = Measured(works, np.exp(expected.log_seconds(works) + shift), doubt)
        chosen = Hyperparameters(known.length_scales, known.op_scale, known.signal, NUGGET)
        costs = expected.costs(family, empty.rates, overall.pace)
        found = _fit(family, carried, empty, {family: chosen}, carried=True, costs=costs)
    spread = departures[family].noise if family in departures else known.noise
    # The doubt about the difference is one for all points: however many there are, it does not average out.
    return with_weights(replace(found, noise=spread + float(np.median(doubt)), measured=len(members)))


def _fit(
    family: str,
    measured: Measured,
    empty: DeviceFit,
    tuned: dict[str, Hyperparameters],
    *,
    carried: bool = False,
    costs: Mapping[str, float] | None = None,
) -> FamilyFit:
    """The fit of ``measured`` ops; of ``carried`` ones, which are no samples but a model's, every point is kept.

    ``costs`` are what another machine's floor lets expect of this one's.
    """
    works, seconds = measured.works, measured.seconds
    on_cpu = empty.device == "cpu"
    parameters = fit_floor(
        works, seconds, empty.rates, threads=empty.threads if on_cpu else 1, cpu=on_cpu, expected=costs
    )
    if on_cpu:  # an accelerator evaluates any function while it waits for memory
        parameters[ARITHMETIC_TOLD] = parameters[LOOPS_TOLD] = 1.0
    floor, share = np.array([floor_parts(work, empty, parameters) for work in works]).T
    labels = tuple(sorted({op_label(work) for work in works}))
    noise = (TIMING_ERROR / floor) ** 2 + measured.noise
    missed = Points(*_inputs(works, labels), np.log(seconds / floor), noise)
    mean = float(np.median(_merged(missed).y))
    # What the residual hardly holds for says as little of it.
    aims = replace(missed, y=mean + (missed.y - mean) / share, noise=(noise + SCATTER) / share**2 - SCATTER)
    # At random, not spread out: the corners of what was sampled are its oddest points, and say least of its middle.
    points = _merged(aims)
    points = points[np.random.default_rng(0).permutation(len(points))]
    if family not in tuned:
        some = min(max(int(HYPERPARAMETER_SHARE * len(works)), LEAST_TUNED), MOST_TUNED)
        tuned[family] = _tune(replace(points, y=points.y - mean)[:some])
    chosen = tuned[family]
    if not carried:
        points = _uncontradicted(points, chosen, mean)
    kept, doubt = _condensed(points, chosen, mean, len(points) if carried else most_points(family))
    return FamilyFit(
        feature_names=fitted_features(family),
        ops=labels,
        x=kept.x,
        op_index=kept.ops,
        y=kept.y,
        point_noise=kept.noise,
        length_scales=chosen.length_scales,
        op_scale=chosen.op_scale,
        mean=mean,
        signal=chosen.signal,
        noise=chosen.noise + doubt,
        parameters=parameters,
        measured=len(works),
    )


def most_points(family: str) -> int:
    """Points that the residual of a family is kept as, at most."""
    return MORE_POINTS.get(family, MOST_POINTS)


def _measured(members: Sequence[Seen]) -> Measured:
    # A sample from a step that did not repeat itself says less.
    return Measured(
        tuple(member.op.work() for member in members),
        np.array([member.op.seconds for member in members]),
        np.array([min(member.spread, 1.0) for member in members]) ** 2,
    )


def _inputs(works: Sequence[Work], labels: Sequence[str]) -> tuple[Array, Indices]:
    """Regression inputs and op indices."""
    index = {label: i for i, label in enumerate(labels)}
    return np.array([inputs_of(work) for work in works]), np.array([index[op_label(work)] for work in works])


def _covariance(left: Points, right: Points, chosen: Hyperparameters) -> Array:
    scales = np.asarray(chosen.length_scales)
    return covariance(distances(left.x, left.ops, right.x, right.ops, scales, chosen.op_scale), chosen.signal)


def _uncontradicted(points: Points, chosen: Hyperparameters, mean: float) -> Points:
    """Without those points that the others around them contradict."""
    calm = []
    for some in np.array_split(np.arange(len(points)), math.ceil(len(points) / LOOKED_AT)):
        part = points[some]
        k = _covariance(part, part, chosen)
        k[np.diag_indices_from(k)] += chosen.noise + part.noise + 1e-9 * chosen.signal
        calm.append(some[uncontradicted(k, part.y - mean)])
    return points[np.concatenate(calm)]


def _condensed(points: Points, chosen: Hyperparameters, mean: float, most: int) -> tuple[Points, float]:
    """At most ``most`` of the points, that all of them together have put in their places, and the doubt that is left.

    The subset of regressors (Rasmussen & Williams, 2006, section 8.3.1): of all functions that so many points can
    carry, the one that fits every point best; its cost grows with the number of points, not with the cube of it. What
    is left of the doubt at the points kept is one for all of them: it does not average out, and is noise.
    """
    if len(points) <= most:
        return replace(points, noise=points.noise + chosen.noise), 0.0
    kept = points[:most]
    inner = _covariance(kept, kept, chosen) + NUGGET * np.eye(most)
    gathered, gram = np.zeros(most), inner.copy()
    for some in np.array_split(np.arange(len(points)), math.ceil(len(points) / LOOKED_AT)):
        part = points[some]  # a part at a time: a reference has a hundred thousand points
        k = _covariance(kept, part, chosen)
        weighed = k / (part.noise + chosen.noise)
        gathered += weighed @ (part.y - mean)
        gram += weighed @ k.T
    solved = np.linalg.solve(gram, np.column_stack([gathered, inner]))
    variance = np.einsum("ij,ji->i", inner, solved[:, 1:])
    placed = replace(kept, y=mean + inner @ solved[:, 0], noise=np.full(most, NUGGET))
    return placed, float(np.median(variance))


def _merged(points: Points) -> Points:
    """Points of one op closer than ``SAME`` in every input become one, their mean: less noise, fewer points."""
    places = np.column_stack([points.ops, np.round(points.x / SAME).astype(np.int64)])
    _, first, cell, count = np.unique(places, axis=0, return_index=True, return_inverse=True, return_counts=True)
    cell = cell.reshape(-1)
    weight = 1.0 / (points.noise + SCATTER)
    share = weight / np.bincount(cell, weight)[cell]

    def mean(values: Array) -> Array:
        return np.asarray(np.bincount(cell, share * values), dtype=np.float64)

    x = np.column_stack([mean(column) for column in points.x.T])
    return Points(x, points.ops[first], mean(points.y), mean(points.noise) / count)


def _tune(points: Points) -> Hyperparameters:
    x, y = points.x, points.y
    variance = max(float(y.var()), 1e-3)
    kernel = ConstantKernel(min(variance, 1.0), (1e-2, 1.5)) * OpMatern(
        length_scale=np.full(x.shape[1], 8.0), op_scale=1.0
    ) + WhiteKernel(min(0.2 * variance, 0.2), (1e-3, 0.5))
    regressor = GaussianProcessRegressor(kernel, alpha=points.noise + 1e-8, optimizer=_search)
    with warnings.catch_warnings():
        # A length scale at its bound means that a feature does not matter here, which is an answer.
        warnings.simplefilter("ignore", ConvergenceWarning)
        regressor.fit(np.column_stack([x, points.ops]), y)
    product, white = regressor.kernel_.k1, regressor.kernel_.k2
    return Hyperparameters(
        length_scales=tuple(float(v) for v in np.atleast_1d(product.k2.length_scale)),
        op_scale=float(product.k2.op_scale),
        signal=float(product.k1.constant_value),
        noise=float(white.noise_level),
    )


def _search(objective: Callable[..., Any], start: Array, bounds: Array) -> tuple[Array, float]:
    """L-BFGS-B, stopped early: the last tenths of likelihood change no price and take most of the time."""
    found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": 25})
    return np.asarray(found.x), float(found.fun)
