"""Fits one op family by transfer from a machine that was measured at length.

How the time of an op depends on its shape is much the same on two machines of a class: which sizes fill a register, a
tile, a cache. A calibration of a minute cannot see all of that, but it can see by how much, and where, this machine
differs from the other; this difference is smoother than the times are, and far fewer samples teach it. Where nothing
was measured here, the other machine's price is scaled by the difference nearby, and the doubt about that is kept.

This is the co-kriging of Kennedy & O'Hagan, *Predicting the output from a complex computer code when fast
approximations are available*, Biometrika 87(1), 2000: a known process plus an independent one learnt from few samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placer.calibration.fitting.comparison import Comparison
from placer.calibration.fitting.difference import ComparedOps, Difference, DifferenceHyperparameters
from placer.calibration.fitting.expectation import Expectation
from placer.calibration.fitting.family import fit_op_times
from placer.calibration.fitting.kernel import Hyperparameters
from placer.calibration.fitting.measured_ops import MeasuredOp, OpTimes, op_times, regression_inputs, timing_variance
from placer.calibration.fitting.points import NUGGET
from placer.pricing import op_label, with_weights
from placer.profile import DeviceFit, FamilyFit

Array = NDArray[np.float64]

#: Ops measured here that are added to the points of a machine of another class: shapes may be fast or slow here alone.
OWN_POINTS = 200


def transfer_family(
    family: str,
    measured: Sequence[MeasuredOp],
    empty: DeviceFit,
    chosen: DifferenceHyperparameters | None,
    expected: Expectation,
    overall: Comparison,
) -> tuple[FamilyFit, DifferenceHyperparameters | None]:
    """The fit of one family that another machine knows, from how this one differs where ``measured`` ops show it.

    Also the hyperparameters of the difference: ``chosen``, or the likeliest where that is None; None where nothing was
    ever measured. ``empty`` has the device's rates.
    """
    known, there = expected.families[family], expected.points(family)
    here = op_times(measured)
    # A machine of the same class keeps the other's points and floor: fitted anew, what lies between them would change
    # by more than a minute can tell.
    some = np.random.default_rng(0).permutation(len(measured))[: 0 if overall.same_class else OWN_POINTS]
    works = (*there, *(here.works[i] for i in some))
    mean, variance = np.full(len(works), overall.pace), np.full(len(works), overall.prior.family_pace)
    if measured:
        labels = tuple(sorted({op_label(work) for work in here.works} | set(known.ops)))
        compared = ComparedOps(
            *regression_inputs(here.works, labels),
            moments=np.array([float(one.moment) for one in measured]),
            y=np.log(here.seconds) - expected.log_seconds(here.works),
            noise=timing_variance(here.seconds) + here.noise,
        )
        difference = Difference(compared, known, overall.pace, overall.prior, chosen)
        chosen = difference.chosen
        mean, variance = difference.predict(*regression_inputs(works, labels))
    # The pace of all ops is a minute's in part. How a family departs from it is not, as far as it was found to.
    shift = mean + (overall.believed - overall.pace)
    if overall.same_class:
        found = replace(known, y=known.y + shift, mean=known.mean + float(np.median(shift)))
    else:
        times = OpTimes(works, np.exp(expected.log_seconds(works) + shift), variance)
        kept = Hyperparameters(known.length_scales, known.op_scale, known.signal, NUGGET)
        costs = expected.costs(family, empty.rates, overall.pace)
        found, _ = fit_op_times(family, times, empty, kept, transferred=True, costs=costs)
    noise = known.noise if chosen is None else chosen.noise
    # The doubt about the difference is one for all points: however many there are, it does not average out.
    return with_weights(replace(found, noise=noise + float(np.median(variance)), measured=len(measured))), chosen
