"""A device from samples of its ops: its numbers in the networks, and an offset of each op, drawn to what is expected.

Beside what is expected of it, an op takes

    log seconds - log expected = pace + change of the network with the numbers + family + op + noise

with normal priors on all but the pace (``Prior``). Where the network is taken as straight that is ridge regression,
whose posterior says how sure the result is (MacKay, "Bayesian interpolation", Neural Computation 4(3), 1992;
scikit-learn's ``BayesianRidge``). It is taken as straight where the numbers were found to be, a few times over
(Gauss-Newton). So a few samples move little, and many what they show.
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
from placer.pricing import CostModel, Work, known_labels, op_label
from placer.pricing.networks import Network, cpu_network
from placer.pricing.physics import cpu_inputs
from placer.profile import Device, FamilyFit

Array = NDArray[np.float64]

#: Fewer ops than this teach nothing of a family.
LEAST_POINTS = 8
#: Standard deviation of log(seconds) of a single op about its price, and how many ops speak for it, and for the priors.
NOISE, BELIEVED = 0.25, 20.0
#: Standard deviations, by the median, beyond which an op was disturbed and is left out; and the standard deviation of a
#: normal distribution over the median of what its values are off by.
FAR_OFF, NORMAL = 4.0, 1.48
#: Fits, each where the one before has found the numbers.
ROUNDS = 5
#: Longest change of a number from one to the next, in standard deviations: without it, fits that begin at another class
#: run away (tests/calibration/fitting/test_device.py).
LONGEST = 1.0
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
    device: Device, measured: Mapping[str, Sequence[MeasuredOp]], pace: float, believed: float, prior: Prior
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
    device: Device, family: str, ops: Sequence[MeasuredOp], pace: float, believed: float, prior: Prior
) -> FamilyFit:
    """One family of the device."""
    known = device.families.get(family) or FamilyFit((), {}, NOISE, 0)
    network = cpu_network(family) if device.device == "cpu" else None
    if network is not None:
        ops = [one for one in ops if not set(known_labels(one.op.work())).isdisjoint(network.labels)]
    if len(ops) < LEAST_POINTS:
        return _moved(known, believed, {}, math.hypot(known.sigma, prior.family, prior.op), 0)
    works = [one.op.work() for one in ops]
    expected, _, _ = CostModel(device).price_works(works)
    off = np.log([one.op.seconds or 0.0 for one in ops]) - np.log(expected) - pace
    variance = np.array([one.variance(math.exp(pace) * each) for one, each in zip(ops, expected, strict=True)])
    labels = [op_label(work) for work in works]
    names = sorted(set(labels))
    of_op = np.array(labels)[:, None] == np.array(names)[None, :]
    offsets = np.hstack([np.full((len(ops), 1), prior.family), prior.op * of_op])
    curve = Curve(network, known, works, device, prior)
    ridge, design = _bent_ridge(curve, offsets, off, variance)
    change, (of_family,), of_ops = np.split(ridge.coef_, [curve.count, curve.count + 1])
    doubt = np.einsum("ij,jk,ik->i", design, ridge.sigma_, design)
    return _moved(
        replace(known, numbers=curve.numbers(change)),
        believed + prior.family * float(of_family),
        {name: prior.op * float(each) for name, each in zip(names, of_ops, strict=True)},
        math.hypot(known.sigma, math.sqrt(float(np.mean(doubt)))),
        len(ops),
    )


def _label(network: Network, work: Work) -> str:
    return next(name for name in known_labels(work) if name in network.labels)


class Curve:
    """How log(seconds) of n ops changes with the numbers of a device, in units of their prior standard deviations.

    ``count`` of them may change; none where prices of the device are published.
    """

    def __init__(
        self, network: Network | None, known: FamilyFit, works: Sequence[Work], device: Device, prior: Prior
    ) -> None:
        self._network, self._before, self._rows = network, np.array(known.numbers), len(works)
        self.count = len(known.numbers) if network is not None else 0
        if network is not None and self.count:
            spread = np.std(list(network.devices.values()), axis=0)
            self._spreads = prior.numbers * np.maximum(spread, LEAST_SPREAD)
            self._labels = [_label(network, work) for work in works]
            _, self._x = cpu_inputs(works, device)
            self._expected = network.learnt(self._x, self._labels, self._before)

    def numbers(self, change: Array) -> tuple[float, ...]:
        """The numbers of the device after a change."""
        return tuple((self._before + self._spreads * change).tolist()) if self.count else tuple(self._before.tolist())

    def at(self, change: Array) -> tuple[Array, Array]:
        """(the change of log(seconds) of each op, its slopes: n x count)."""
        if self._network is None or not self.count:
            return np.zeros(self._rows), np.empty((self._rows, 0))
        numbers = np.array(self.numbers(change))
        moved = self._network.learnt(self._x, self._labels, numbers) - self._expected
        return moved, self._network.slopes(self._x, self._labels, numbers) * self._spreads


def _bent_ridge(curve: Curve, offsets: Array, off: Array, variance: Array) -> tuple[BayesianRidge, Array]:
    """(the fit of standard normal coefficients, the columns that they belong to), without ops that were disturbed."""
    weights = NOISE**2 / (NOISE**2 + variance)
    kept = np.ones(len(off), dtype=bool)
    change = np.zeros(curve.count)
    for _ in range(ROUNDS):
        moved, slopes = curve.at(change)
        design, target = np.hstack([slopes, offsets]), off - moved + slopes @ change
        ridge = BayesianRidge(
            fit_intercept=False, alpha_1=BELIEVED, alpha_2=BELIEVED * NOISE**2, lambda_1=BELIEVED, lambda_2=BELIEVED
        )
        ridge.fit(design[kept], target[kept], sample_weight=weights[kept])
        change = np.clip(ridge.coef_[: curve.count], change - LONGEST, change + LONGEST)
        rest = np.abs(target - design @ ridge.coef_) * np.sqrt(weights)
        kept = rest <= FAR_OFF * max(NORMAL * float(np.median(rest)), NOISE)
    return ridge, design


def _moved(known: FamilyFit, by: float, of_op: Mapping[str, float], sigma: float, measured: int) -> FamilyFit:
    """``known`` with all its offsets moved, and those of some ops further; ``sigma`` and ``measured`` are its own."""
    moved = known.times(math.exp(by))
    offsets = {**moved.offsets, **{name: moved.offset((name,)) + more for name, more in of_op.items()}}
    return replace(moved, offsets=offsets, sigma=sigma, measured=measured)
