"""Fits one op family: a physical floor, and a Gaussian process on what the floor misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from placer.calibration.fitting.floors import fit_floor
from placer.calibration.fitting.kernel import Hyperparameters
from placer.calibration.fitting.measured_ops import MeasuredOp, OpTimes, op_times, regression_inputs, timing_variance
from placer.calibration.fitting.points import SCATTER, Points, condensed, merged, without_outliers
from placer.calibration.fitting.tuning import likeliest_hyperparameters
from placer.pricing import (
    ARITHMETIC_BY_FLOOR,
    LOOPS_BY_FLOOR,
    PUBLISHED,
    device_model,
    fitted_features,
    floor_parts,
    op_label,
    with_weights,
)
from placer.pricing.gpu import LAUNCH, edition
from placer.profile import DeviceFit, FamilyFit

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
        most = MOST_TUNING if on_cpu else MOST_TUNING_ACCELERATOR
        some = min(max(int(TUNING_SHARE * len(works)), LEAST_TUNING), most)
        chosen = likeliest_hyperparameters(replace(points, y=points.y - mean)[:some])
    if not transferred:
        points = without_outliers(points, chosen, mean)
    kept, variance = condensed(points, chosen, mean, len(points) if transferred else most_points(family))
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


def most_points(family: str) -> int:
    """Points that the residual of a family is kept as, at most."""
    return MORE_POINTS.get(family, MOST_POINTS)
