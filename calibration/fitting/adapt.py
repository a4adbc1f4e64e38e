"""A device from samples of its ops: its numbers in the networks, and an offset of each op, drawn to what is expected.

Beside what is expected of it, an op takes

    log seconds - log expected = pace + slopes of the network . change of the numbers + family + op + noise

with normal priors on all but the pace (``Prior``): ridge regression, whose posterior says how sure the result is
(MacKay, "Bayesian interpolation", Neural Computation 4(3), 1992; scikit-learn's ``BayesianRidge``). So a few samples
move little, and many what they show. A network bends little over such changes, and is taken as straight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.linear_model import BayesianRidge
from threadpoolctl import threadpool_limits

from placer.calibration.fitting.samples import MeasuredOp
from placer.pricing import CostModel, Network, Work, cpu_inputs, cpu_network, known_labels, op_label
from placer.profile import DeviceFit, FamilyFit

Array = NDArray[np.float64]

#: Fewer ops than this teach nothing of a family.
LEAST_POINTS = 8
#: Standard deviation of log(seconds) of a single op about its price, and how many ops speak for it, and for the priors.
NOISE, BELIEVED = 0.25, 20.0
#: Standard deviations beyond which an op was disturbed, and is left out.
FAR_OFF, ROUNDS = 4.0, 2
#: Least spread of a number among devices.
LEAST_SPREAD = 0.05


class Prior(NamedTuple):
    """How far a device is expected to be from another, as standard deviations of log(seconds).

    ``numbers``: of each number, over its spread among the devices that the network knows. ``family``: of a family's
    pace about that of all. ``op``: of an op about its family.
    """

    numbers: float
    family: float
    op: float


#: Devices of one class differ by what other programs and temperature do; of others, in anything.
SAME_CLASS, OTHER_CLASS = Prior(0.1, 0.045, 0.05), Prior(1.0, 0.4, 0.4)


def adapt(
    device: DeviceFit, measured: Mapping[str, Sequence[MeasuredOp]], pace: float, believed: float, prior: Prior
) -> dict[str, FamilyFit]:
    """The families of ``device``, of which these ops were measured at a ``pace``; both paces are logarithms.

    Every price changes by the pace that is ``believed``, and by what its family differs in. Families that nothing was
    measured of change by the pace alone.
    """
    names = {*device.families, *(name for name, ops in measured.items() if len(ops) >= LEAST_POINTS)}
    with threadpool_limits(limits=1, user_api="blas"):
        found = Parallel(n_jobs=-1, prefer="threads")(
            delayed(_adapted)(device, family, measured.get(family, ()), pace, believed, prior)
            for family in sorted(names)
        )
    return dict(zip(sorted(names), found, strict=True))


def _adapted(
    device: DeviceFit, family: str, ops: Sequence[MeasuredOp], pace: float, believed: float, prior: Prior
) -> FamilyFit:
    """One family of the device."""
    known = device.families.get(family) or FamilyFit((), {}, NOISE, 0)
    network = cpu_network(family) if device.device == "cpu" else None
    if network is not None:
        ops = [one for one in ops if not set(known_labels(one.op.work())).isdisjoint(network.labels)]
    if len(ops) < LEAST_POINTS:
        return _moved(known, believed, {}, math.hypot(known.sigma, prior.family), 0)
    works = [one.op.work() for one in ops]
    labels = [op_label(work) for work in works]
    names = sorted(set(labels))
    spreads = _spreads(network, known, prior)
    of_numbers = _slopes(network, known, works, device) * spreads if len(spreads) else np.empty((len(ops), 0))
    of_family = np.full((len(ops), 1), prior.family)
    of_op = prior.op * (np.array(labels)[:, None] == np.array(names)[None, :])
    design = np.hstack([of_numbers, of_family, of_op])
    expected, _, _ = CostModel(device).price_works(works)
    off = np.log([one.op.seconds or 0.0 for one in ops]) - np.log(expected) - pace
    ridge = _ridge(design, off, np.array([one.variance for one in ops]))
    count = len(spreads)
    change, family_pace, of_ops = ridge.coef_[:count], ridge.coef_[count], ridge.coef_[count + 1 :]
    variance = np.einsum("ij,jk,ik->i", design, ridge.sigma_, design)
    numbers = tuple((np.array(known.numbers) + spreads * change).tolist()) if count else known.numbers
    return _moved(
        replace(known, numbers=numbers), believed + prior.family * float(family_pace),
        {name: prior.op * float(each) for name, each in zip(names, of_ops, strict=True)},
        math.hypot(known.sigma, math.sqrt(float(np.mean(variance)))), len(ops),
    )  # fmt: skip


def _spreads(network: Network | None, known: FamilyFit, prior: Prior) -> Array:
    """The prior standard deviation of each of the device's numbers."""
    if network is None or not known.numbers or prior.numbers == 0.0:
        return np.empty(0)
    spread = np.std(list(network.devices.values()), axis=0)
    return np.asarray(prior.numbers * np.maximum(spread, LEAST_SPREAD))


def _slopes(network: Network | None, known: FamilyFit, works: Sequence[Work], device: DeviceFit) -> Array:
    """How log(seconds) of n ops changes with each of the k numbers of the device: n x k."""
    if network is None or not known.numbers:
        return np.empty((len(works), 0))
    labels = [next(name for name in known_labels(work) if name in network.labels) for work in works]
    _, x = cpu_inputs(works, device)
    return np.asarray(network.slopes(x, labels, np.array(known.numbers)), dtype=np.float64)


def _ridge(design: Array, off: Array, variance: Array) -> BayesianRidge:
    """The fit of standard normal coefficients, without ops that were disturbed."""
    weights = NOISE**2 / (NOISE**2 + variance)
    kept = np.ones(len(off), dtype=bool)
    for _ in range(ROUNDS):
        ridge = BayesianRidge(
            fit_intercept=False, alpha_1=BELIEVED, alpha_2=BELIEVED * NOISE**2, lambda_1=BELIEVED, lambda_2=BELIEVED
        )
        ridge.fit(design[kept], off[kept], sample_weight=weights[kept])
        rest = (off - design @ ridge.coef_) * np.sqrt(weights)
        kept = np.abs(rest) <= FAR_OFF / math.sqrt(ridge.alpha_)
    return ridge


def _moved(known: FamilyFit, by: float, of_op: Mapping[str, float], sigma: float, measured: int) -> FamilyFit:
    """``known`` with all its offsets moved, and those of some ops further; ``sigma`` and ``measured`` are its own."""
    offsets = {"": known.offsets.get("", 0.0) + by, **{name: old + by for name, old in known.offsets.items()}}
    offsets |= {name: known.offset((name,)) + by + more for name, more in of_op.items()}
    return replace(known, offsets=offsets, sigma=sigma, measured=measured)
