"""Fits one op family: a physical floor, and a Gaussian process on what the floor misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.calibration.fitting.floors import fit_floor
from placer.calibration.fitting.gaussian import (
    SCATTER,
    Hyperparameters,
    Points,
    condensed,
    likeliest_hyperparameters,
    merged,
    without_outliers,
)
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.pricing import (
    ARITHMETIC_BY_FLOOR,
    LOOPS_BY_FLOOR,
    PUBLISHED,
    Work,
    device_model,
    fitted_features,
    floor_parts,
    inputs_of,
    on_accelerator,
    op_label,
    with_weights,
)
from placer.pricing.gpu import LAUNCH, edition
from placer.profile import DeviceFit, FamilyFit, Sample

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

#: Seconds by which recording may misplace the ends of an op, its cost known: what makes short ones uncertain.
TIMING_ERROR = 0.4e-6


@dataclass(frozen=True)
class MeasuredOp:
    """One op as it was measured, the spread of its step's repetitions, and the number of its step (``moment``)."""

    op: OpObservation
    spread: float
    moment: int


@dataclass(frozen=True)
class OpTimes:
    """Ops, their seconds, and variances of log(seconds) beyond what recording adds."""

    works: tuple[Work, ...]
    seconds: Array
    noise: Array


def ops_by_family(observations: Sequence[StepObservation]) -> dict[str, list[MeasuredOp]]:
    """All ops that were timed; those of an accelerator as its kernels see them."""
    found: dict[str, list[MeasuredOp]] = {}
    for moment, step in enumerate(observations):
        for op in step.ops:
            # An optimizer step divides evenly among equal tensors only: its own probes are its samples.
            if op.seconds and (op.family != "optimizer" or step.family == "optimizer"):
                seen = op if step.device == "cpu" else _on_accelerator(op)
                found.setdefault(op.family, []).append(MeasuredOp(seen, step.spread, moment))
    return found


def _on_accelerator(op: OpObservation) -> OpObservation:
    work = on_accelerator(op.work())
    return replace(op, op=work.op, dtype=work.dtype, features=work.features)


def op_times(measured: Sequence[MeasuredOp]) -> OpTimes:
    """The times of these ops. A sample from a step that did not repeat itself says less."""
    return OpTimes(
        tuple(one.op.work() for one in measured),
        np.array([one.op.seconds for one in measured]),
        np.array([min(one.spread, 1.0) for one in measured]) ** 2,
    )


def timing_variance(seconds: Array) -> Array:
    """The variance that recording adds to log(seconds)."""
    return (TIMING_ERROR / seconds) ** 2


def regression_inputs(works: Sequence[Work], labels: Sequence[str]) -> tuple[Array, Indices]:
    """The inputs (n x d) of a residual, and indices of the ops among ``labels``."""
    index = {label: i for i, label in enumerate(labels)}
    return np.array([inputs_of(work) for work in works]), np.array([index[op_label(work)] for work in works])


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


#: Points the residual of one family is kept as, at most: reading and pricing cost time proportional to them, and a
#: calibration time proportional to their cube. Only where shapes vary in many ways, or ops are many, do more of them
#: price steps closer.
MOST_POINTS = 480
MORE_POINTS = {
    "elementwise": 1000, "matmul": 1500, "convolution": 1500, "convolution_backward": 1500, "indexing": 1500,
    "recurrent": 1500, "attention": 1500,
}  # fmt: skip
#: Points the hyperparameters are chosen on: a share of all, since that costs the cube of it many times over; few would
#: take chance for length scales.
TUNING_SHARE, LEAST_TUNING, MOST_TUNING = 0.1, 140, 800
#: The most of them on an accelerator, which no shipped profile spares the search: a minute's samples know no more.
MOST_TUNING_ACCELERATOR = 200


def fit_family(
    family: str, measured: Sequence[MeasuredOp], empty: DeviceFit, chosen: Hyperparameters | None
) -> tuple[FamilyFit, Hyperparameters]:
    """The fit of one family from its ops, and its hyperparameters: ``chosen``, or the likeliest where that is None.

    ``empty`` has the device's rates.
    """
    found, chosen = fit_op_times(family, op_times(measured), empty, chosen)
    return with_weights(found), chosen


def fit_op_times(
    family: str,
    times: OpTimes,
    empty: DeviceFit,
    chosen: Hyperparameters | None,
    *,
    transferred: bool = False,
    costs: Mapping[str, float] | None = None,
) -> tuple[FamilyFit, Hyperparameters]:
    """The fit of these ``times``, without weights, and its hyperparameters.

    Times that are ``transferred`` are no samples but a model's: every point is kept. ``costs`` are what another
    machine's floor makes likely for this one's.
    """
    works, seconds = times.works, times.seconds
    on_cpu = empty.device == "cpu"
    if empty.gpu:
        # A few samples of a GPU that the catalog knows say how it differs from what is known: far less than all of it.
        parameters = {"latency": LAUNCH, PUBLISHED: edition()}
        floor, share = np.array(device_model(empty.gpu).price(works)[0]), np.ones(len(works))
    else:
        parameters = fit_floor(
            works, seconds, empty.rates, threads=empty.threads if on_cpu else 1, cpu=on_cpu, expected=costs
        )
        if on_cpu:  # an accelerator evaluates any function while it waits for memory
            parameters[ARITHMETIC_BY_FLOOR] = parameters[LOOPS_BY_FLOOR] = 1.0
        floor, share = np.array([floor_parts(work, empty, parameters) for work in works]).T
    labels = tuple(sorted({op_label(work) for work in works}))
    noise = timing_variance(floor) + times.noise
    missed = Points(*regression_inputs(works, labels), np.log(seconds / floor), noise)
    mean = float(np.median(merged(missed).y))
    # An op whose time the residual explains in part says less of it.
    points = merged(replace(missed, y=mean + (missed.y - mean) / share, noise=(noise + SCATTER) / share**2 - SCATTER))
    # At random, not spread out: the corners of what was sampled are its oddest points, and say least of its middle.
    points = points[np.random.default_rng(0).permutation(len(points))]
    if chosen is None:
        tuning = MOST_TUNING if on_cpu else MOST_TUNING_ACCELERATOR
        some = min(max(int(TUNING_SHARE * len(works)), LEAST_TUNING), tuning)
        chosen = likeliest_hyperparameters(replace(points, y=points.y - mean)[:some])
    if not transferred:
        points = without_outliers(points, chosen, mean)
    most = len(points) if transferred else MORE_POINTS.get(family, MOST_POINTS)
    kept, variance = condensed(points, chosen, mean, most)
    found = FamilyFit(
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
        noise=chosen.noise + variance,
        parameters=parameters,
        measured=len(works),
    )
    return found, chosen
