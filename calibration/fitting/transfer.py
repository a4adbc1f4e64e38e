"""Fits one op family by transfer from a machine that was measured at length.

How the time of an op depends on its shape is much the same on two machines of a class: which sizes fill a register, a
tile, a cache. A calibration of a minute cannot see all of that, but it can see by how much, and where, this machine
differs from the other; this difference is smoother than the times are, and far fewer samples teach it. Where nothing
was measured here, the other machine's price is scaled by the difference nearby, and the doubt about that is kept.

This is the co-kriging of Kennedy & O'Hagan, *Predicting the output from a complex computer code when fast
approximations are available*, Biometrika 87(1), 2000: a known process plus an independent one learnt from few samples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer import profile
from placer.calibration.fitting.family import (
    MeasuredOp,
    OpTimes,
    fit_op_times,
    op_times,
    regression_inputs,
    timing_variance,
)
from placer.calibration.fitting.gaussian import NUGGET, Hyperparameters, Points, inliers
from placer.calibration.fitting.moments import Moments
from placer.calibration.measuring.journal import OpObservation
from placer.pricing import (
    ARITHMETIC_BY_FLOOR,
    LOOPS_BY_FLOOR,
    PUBLISHED,
    VARIANT,
    CostModel,
    Work,
    covariance,
    distances,
    foreign_family,
    op_label,
    size_count,
    with_weights,
    work_of_features,
)
from placer.profile import SAME_CLASS_WITHIN, DeviceFit, FamilyFit, Profile, dissimilarity

Array = NDArray[np.float64]


class Expectation:
    """Prices of another machine's fit, and the points it rests on."""

    def __init__(self, fit: DeviceFit, *, same_class: bool = False, name: str = "") -> None:
        """``same_class``: the other machine is of this one's class, and its times are expected to be those of this one.
        ``name`` is what its profile is called.

        Raises ProfileError for a fit of other features than this version's.
        """
        self.fit = fit
        self.same_class = same_class
        self.name = name
        self._model = CostModel(fit)
        self._points: dict[str, list[Work]] = {}

    @property
    def families(self) -> Mapping[str, FamilyFit]:
        """What the other machine knows, by family."""
        return self.fit.families

    def log_seconds(self, works: Sequence[Work]) -> Array:
        """Logs of what the ops would take there."""
        return np.asarray(np.log(self._model.price_works(works)[0]), dtype=np.float64)

    def costs(self, name: str, rates: Mapping[str, float], pace: float) -> dict[str, float]:
        """What the floor of family ``name`` is expected to cost on a device of these ``rates``, by parameter.

        FLOPs and bytes go by the devices' own rates, all else by the ``pace`` (a logarithm) of this machine's ops.
        """
        return {
            parameter: cost * self._factor(parameter, rates, pace)
            for parameter, cost in self.families[name].parameters.items()
            if parameter not in (ARITHMETIC_BY_FLOOR, LOOPS_BY_FLOOR, PUBLISHED)
        }

    def _factor(self, parameter: str, rates: Mapping[str, float], pace: float) -> float:
        there = self.fit.rates
        amount, _, label = parameter.partition("@")
        if amount == "bytes":
            return there["bytes_per_second"] / rates["bytes_per_second"]
        if amount == "flops":
            # An accelerator's costs are of FLOPs of float32 in any case (``floor_amounts``).
            own = f"flops/{label.rpartition(':')[2]}" if self.fit.device == "cpu" else ""
            rate = own if own in there and own in rates else "flops/float32"
            return there[rate] / rates[rate]
        return math.exp(pace)

    def points(self, name: str) -> list[Work]:
        """The ops that family ``name`` was learnt from."""
        if name not in self._points:
            fit = self.families[name]
            pairs = zip(fit.x.tolist(), fit.op_index, strict=True)
            self._points[name] = [work_at(name, fit.ops[op], row) for row, op in pairs]
        return self._points[name]


def work_at(family: str, label: str, inputs: Sequence[float]) -> Work:
    """The op whose regression inputs these are: the inverse of ``pricing.inputs_of`` and ``pricing.op_label``."""
    name, _, dtype = label.rpartition(":")
    if name.endswith(":"):  # the double colon of a name without dtype
        name, dtype = label, "float32"
    name, _, _ = name.partition(VARIANT)  # the sizes determine the variant
    amounts = 2 + size_count(family)
    # Back from its logarithm, a width of 64 is not quite that, and another number of vector registers is filled.
    sizes = [round(math.exp2(v) - 1.0, 6) for v in inputs[:amounts]]
    return work_of_features(family, name, dtype, (*sizes, *inputs[amounts:]))


def shipped_references() -> tuple[Profile, ...]:
    """The shipped profiles, without their samples."""
    return tuple(profile.load(name, samples=False) for name in profile.shipped())


def expectations(
    known: Sequence[Profile], device: str, threads: int, fingerprint: Mapping[str, Any]
) -> list[Expectation]:
    """What the profiles of the most similar machine say of a device; none where none knows such a device.

    Of this machine's own class it may be several, of a quiet and of a contended machine. Of others that are all equally
    dissimilar it is the newest, whose ops are described the closest. One made by another version of placer, which
    describes ops by other features, is passed over.
    """
    current = [
        found for found in known
        if device in found.devices() and foreign_family(found.fit(device, threads)) is None
    ]  # fmt: skip
    newest_first = sorted(current, key=lambda found: found.created, reverse=True)
    unlike = [dissimilarity(found.fingerprint, fingerprint, device) for found in newest_first]
    nearest = [found for found, off in zip(newest_first, unlike, strict=True) if off == min(unlike)]
    same_class = bool(unlike) and min(unlike) < SAME_CLASS_WITHIN
    return [
        Expectation(found.fit(device, threads), same_class=same_class, name=found.name)
        for found in (nearest if same_class else nearest[:1])
    ]


#: Standard deviation of the log of the families' own paces, per log of the pace: other programs slow views down half as
#: much again as convolutions.
FAMILY_PER_PACE = 0.3
#: Standard deviations of the log of the pace: of machines of one class, and of one machine from minute to minute.
SAME_CLASS_SPREAD, MINUTE_SPREAD = 0.04, 0.06
#: How often a minute falls into a time in which the machine is contended for long, and the standard deviation of the
#: log of the pace then.
REGIMES, REGIME_SPREAD = 0.2, 0.25
#: Steps of a calibration in a minute, roughly.
MOMENTS_PER_MINUTE = 200
#: Standard deviation of the log of the families' own paces from which on machines are of other classes whatever they
#: call themselves, and the fewest ops that show a family's pace. Noise alone made 0.17 of it in a contended minute.
UNLIKE, SHOWING = 0.25, 20
#: Log of the pace from which on they are in any case: another program costs no more than half of a core.
FAR_OFF = math.log(2.0)


@dataclass(frozen=True)
class Comparison:
    """How this machine differs from another over all.

    ``pace`` is the log of the times of its ops over the other's, and ``believed`` the log of the pace that is expected
    to last.
    """

    pace: float
    believed: float
    prior: DifferencePrior

    @property
    def same_class(self) -> bool:
        """Whether the two are of one class."""
        return self.prior != OTHER_CLASS


def compare(ops: Sequence[OpObservation], expected: Expectation, steps: int, moments: Moments) -> Comparison:
    """The comparison over all ops that the other machine knows; they come from so many ``steps``.

    Where the other is of the same class, and was measured for longer, a small difference is mostly one of the minute; a
    large one lasts, and so does that of a machine whose ``moments`` differ. It is that of whole steps, where they tell
    it: what is between the ops is lengthened too. Where every family differs in its own way, the two are not of one
    class.
    """
    known = [op for op in ops if op.family in expected.families]
    if not known:
        return Comparison(0.0, 0.0, SAME_CLASS if expected.same_class else OTHER_CLASS)
    seconds = np.array([op.seconds for op in known])
    ratios = np.log(seconds) - expected.log_seconds([op.work() for op in known])
    pace = float(np.median(ratios))
    if not expected.same_class or abs(pace) > FAR_OFF or _unlike([op.family for op in known], ratios - pace):
        return Comparison(pace, pace, OTHER_CLASS)
    prior = DifferencePrior(SAME_CLASS.family_pace + (FAMILY_PER_PACE * pace) ** 2, SAME_CLASS.signals)
    of_steps = pace if moments.pace is None else moments.pace
    return Comparison(pace, _trust(of_steps, steps, moments) * of_steps, prior)


def _unlike(families: Sequence[str], ratios: Array) -> bool:
    """Whether families' paces (``ratios``: logs by op, about the median) differ by more than contention explains."""
    names = np.array(families)
    by_family = [ratios[names == name] for name in dict.fromkeys(families)]
    paces = [abs(float(np.median(own))) for own in by_family if len(own) >= SHOWING]
    return len(paces) > 1 and 1.48 * float(np.median(paces)) > UNLIKE


def _trust(pace: float, steps: int, moments: Moments) -> float:
    """The share of a log pace, measured in one minute, that is believed to last.

    A machine's pace varies by the minute about its usual one, by what its moments differ the more; and now and then
    contention holds it at another one for long. The further off, the likelier it is the latter (a mixture of two normal
    distributions).
    """
    passing = MINUTE_SPREAD**2 * MOMENTS_PER_MINUTE / max(steps, 1) + moments.spread**2 / moments.seconds
    own, lasting_own = (spread**2 + moments.spread**2 for spread in (SAME_CLASS_SPREAD, REGIME_SPREAD))
    usual, regime = own + passing, lasting_own + passing
    passing_odds = (1.0 - REGIMES) / REGIMES * math.sqrt(regime / usual)
    lasting = 1.0 / (1.0 + passing_odds * math.exp(-0.5 * pace**2 * (1.0 / usual - 1.0 / regime)))
    return (1.0 - lasting) * own / usual + lasting * lasting_own / regime


Indices = NDArray[np.int64]

#: Points the difference is learnt from, and those its hyperparameters are chosen on, at most.
MOST_COMPARED, TUNING_POINTS = 400, 160
#: Steps of a calibration, about a tenth of a second each, over which the machine's speed of the moment is forgotten.
MOMENT = 12.0
#: What the hyperparameters are chosen among: stretches of the length scales, and variances.
STRETCHES, NOISES, DRIFTS = (1.5, 3.0, 6.0), (0.003, 0.01, 0.03, 0.1), (0.0, 0.003, 0.01, 0.03)


@dataclass(frozen=True)
class DifferencePrior:
    """How far two machines are expected to differ, before they are compared.

    ``family_pace`` is the variance of the log of a family's own pace, about that of all families; ``signals`` are the
    variances that its course over the features may have.
    """

    family_pace: float
    signals: tuple[float, ...]


#: Machines of other classes; and machines of one class, which differ by what other programs and temperature do.
OTHER_CLASS = DifferencePrior(0.06, (0.003, 0.01, 0.03, 0.1, 0.3))
SAME_CLASS = DifferencePrior(0.002, (0.001, 0.003, 0.01))


@dataclass(frozen=True)
class DifferenceHyperparameters:
    """How the difference between two machines varies: over what change of features, by how much, and how noisily.

    ``stretch`` multiplies the length scales of the other machine's residual. ``signal``, ``drift`` and ``noise`` are
    variances: of what varies with the features, of the speed of the moment, and of a single op.
    """

    stretch: float
    signal: float
    noise: float
    drift: float


@dataclass(frozen=True)
class ComparedOps(Points):
    """Where two machines were compared: the targets are logs of the ratio. ``moments`` number the steps."""

    moments: Array

    def __getitem__(self, some: Any) -> ComparedOps:
        return ComparedOps(self.x[some], self.ops[some], self.y[some], self.noise[some], self.moments[some])


class Difference:
    """The log of one machine's times over another's, of one family, as a function of an op's features."""

    def __init__(
        self,
        points: ComparedOps,
        known: FamilyFit,
        pace: float,
        prior: DifferencePrior,
        chosen: DifferenceHyperparameters | None = None,
    ) -> None:
        """``pace`` is the log ratio of ops of all families. ``chosen`` None: the likeliest are chosen."""
        points = points[np.random.default_rng(0).permutation(len(points.y))[:MOST_COMPARED]]
        self._scales, self._op_scale = np.asarray(known.length_scales), known.op_scale
        self._pace, self._prior = pace, prior
        self.chosen = chosen or self._likeliest(points[np.arange(min(TUNING_POINTS, len(points.y)))])
        self._points = points[inliers(self._observed(points), points.y - pace)]
        self._inverse = np.linalg.inv(self._observed(self._points))
        self._alpha = self._inverse @ (self._points.y - pace)

    def predict(self, x: Array, ops: Indices) -> tuple[Array, Array]:
        """Mean and variance of the log ratio at ``x`` (n x d), at the machine's usual speed."""
        varying = self._varying(x, ops, self._points, self.chosen.stretch)
        k = self._prior.family_pace + self.chosen.signal * varying
        known = np.einsum("ij,ij->i", k @ self._inverse, k)
        variance = self._prior.family_pace + self.chosen.signal - known
        return self._pace + k @ self._alpha, np.maximum(variance, 0.0)

    def _varying(self, x: Array, ops: Indices, points: ComparedOps, stretch: float) -> Array:
        """Covariance of what varies with the features, at a variance of 1."""
        scales, op_scale = stretch * self._scales, stretch * self._op_scale
        return covariance(distances(x, ops, points.x, points.ops, scales, op_scale), 1.0)

    def _observed(self, points: ComparedOps) -> Array:
        """Covariance of the samples themselves."""
        varying = self._varying(points.x, points.ops, points, self.chosen.stretch)
        return self._with_noise(varying, _together(points.moments), points.noise, self.chosen)

    def _with_noise(self, varying: Array, together: Array, noise: Array, chosen: DifferenceHyperparameters) -> Array:
        k = self._prior.family_pace + chosen.signal * varying + chosen.drift * together
        k[np.diag_indices_from(k)] += chosen.noise + noise + 1e-9
        return k

    def _likeliest(self, points: ComparedOps) -> DifferenceHyperparameters:
        """The likeliest of a small grid: some dozen samples cannot choose among more."""
        y, together = points.y - self._pace, _together(points.moments)
        found: list[tuple[float, DifferenceHyperparameters]] = []
        for stretch in STRETCHES:
            varying = self._varying(points.x, points.ops, points, stretch)
            for signal, noise, drift in itertools.product(self._prior.signals, NOISES, DRIFTS):
                candidate = DifferenceHyperparameters(stretch, signal, noise, drift)
                k = self._with_noise(varying, together, points.noise, candidate)
                white = np.linalg.solve(np.linalg.cholesky(k), y)
                # But for a constant (Rasmussen & Williams, 2006, equation 2.30).
                found.append((-0.5 * (white @ white + np.linalg.slogdet(k)[1]), candidate))
        return max(found, key=lambda pair: pair[0])[1]


def _together(moments: Array) -> Array:
    """How much of the speed of the moment two samples share, from 0 to 1."""
    return np.exp(-np.abs(moments[:, None] - moments[None, :]) / MOMENT)


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
