"""What is expected of a machine's ops before they are measured: the prices of a machine that was measured at length.

How the time of an op depends on its shape is much the same on two machines of a kind: which sizes fill a register, a
tile, a cache. A calibration of a minute cannot see all of that, but it can see by how much, and where, this machine
differs from the other; this difference is smoother than the times are, and far fewer samples teach it. Where nothing
was measured here, the other machine's price is scaled by the difference nearby, and the doubt about that is kept.

This is the co-kriging of Kennedy & O'Hagan, *Predicting the output from a complex computer code when fast
approximations are available*, Biometrika 87(1), 2000: a known process plus an independent one learnt from few samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placer.calibration.fitting.difference import OTHER_CLASS, SAME_CLASS, ClassDistance
from placer.calibration.measuring.observation import OpObservation
from placer.calibration.measuring.speed_probe import USUAL_READING
from placer.pricing import ARITHMETIC_TOLD, CONTEXT_SIZES, FAMILIES, LOOPS_TOLD, VARIANT, CostModel, Work
from placer.profile import DeviceFit, FamilyFit

Array = NDArray[np.float64]

#: Log of the pace per log of the reading, and how doubtful that is. Beside neighbours that made readings 1.6 times as long,
#: ops of an AMD machine took 1.61 times as long; where readings were 1.4 times as long, an Intel machine's took 1.5 times.
PER_READING, PER_READING_DOUBT = 1.1, 0.5
#: Standard deviation of the log of the families' own paces, per log of the reading: views feel a neighbour half as much
#: again as convolutions do.
FAMILY_PER_READING = 0.3
#: Standard deviations of the log of the pace: of machines of one kind, and of one machine from minute to minute.
SAME_CLASS_SPREAD, MINUTE_SPREAD = 0.04, 0.06
#: How often a minute falls into a time in which neighbours keep the machine at another pace for long, and the standard
#: deviation of the log of that.
REGIMES, REGIME_SPREAD = 0.2, 0.25
#: Steps of a calibration in a minute, roughly.
MOMENTS_PER_MINUTE = 200
#: Standard deviation of the log of the families' own paces from which on machines are other_classes whatever they call
#: themselves, and the fewest ops that tell a family's pace. Noise alone made 0.17 of it in a contended minute.
UNLIKE, TELLING = 0.25, 20
#: Log of the pace from which on they are in any case: no neighbour costs more than half of a core.
FAR_OFF = math.log(2.0)


class Expectation:
    """Prices of another machine's fit, and the points it rests on."""

    def __init__(self, fit: DeviceFit, *, same_class: bool = False, name: str = "") -> None:
        """``same_class``: the other machine is of the same kind, and its times are expected to be those of this one.
        ``name`` is what its profile is called.

        Raises ProfileError for a fit of other features than this version's.
        """
        self.fit = fit
        self.same_class = same_class
        self.name = name
        self._model = CostModel(fit)

    @property
    def families(self) -> Mapping[str, FamilyFit]:
        """What the other machine knows, by family."""
        return self.fit.families

    def log_seconds(self, works: Sequence[Work]) -> Array:
        """Logs of what the ops would take there."""
        return np.asarray(np.log(self._model.price_works(works)[0]), dtype=np.float64)

    def apart(self, rates: Mapping[str, float]) -> float:
        """Log of a reading (``rates`` are of a device here) over the other machine's; 0.0 where one was not felt."""
        here, there = rates.get(USUAL_READING, 0.0), self.fit.rates.get(USUAL_READING, 0.0)
        return math.log(here / there) if here > 0.0 and there > 0.0 else 0.0

    def costs(self, name: str, rates: Mapping[str, float], pace: float) -> dict[str, float]:
        """What the floor of family ``name`` is expected to cost on a device of these ``rates``, by parameter.

        FLOPs and bytes go by the devices' own rates, all else at the pace (a logarithm) of this machine's ops.
        """
        return {
            parameter: cost * self._factor(parameter, rates, pace)
            for parameter, cost in self.families[name].parameters.items()
            if parameter not in (ARITHMETIC_TOLD, LOOPS_TOLD)
        }

    def _factor(self, parameter: str, rates: Mapping[str, float], pace: float) -> float:
        there = self.fit.rates
        amount, _, label = parameter.partition("@")
        if amount == "bytes":
            return there["bytes_per_second"] / rates["bytes_per_second"]
        if amount == "flops":
            own = f"flops/{label.rpartition(':')[2]}"
            rate = own if own in there and own in rates else "flops/float32"
            return there[rate] / rates[rate]
        return math.exp(pace)

    def points(self, name: str) -> list[Work]:
        """The ops that family was learnt from."""
        return self._points[name]

    @cached_property
    def _points(self) -> dict[str, list[Work]]:
        return {
            name: [work_at(name, fit.ops[op], row) for row, op in zip(fit.x.tolist(), fit.op_index, strict=True)]
            for name, fit in self.fit.families.items()
        }


@dataclass(frozen=True)
class Comparison:
    """How this machine differs from another over all.

    ``pace`` is the log of its times over the other's, ``likely`` what their readings alone make of that, and ``trust`` the
    share of what is left of the pace that is believed to be there to stay.
    """

    pace: float
    trust: float
    class_distance: ClassDistance
    likely: float = 0.0

    @property
    def same_class(self) -> bool:
        """Whether the two are of one kind."""
        return self.class_distance is not OTHER_CLASS

    @property
    def believed(self) -> float:
        """The log of the pace that is expected to stay."""
        return self.likely + self.trust * (self.pace - self.likely)


def compared(
    ops: Sequence[OpObservation], expected: Expectation, moments: int, rates: Mapping[str, float]
) -> Comparison:
    """The median over all ops that the other machine knows; ``moments`` is the number of steps they come from.

    ``rates`` are the device's own; of them its usual reading counts. Where the other is of the same kind, and was measured
    for longer, a difference that the readings do not explain is mostly that of the minute if it is small; a large one is
    not. Where families differ each in its own way, the two are not alike at all.
    """
    known = [op for op in ops if op.family in expected.families]
    apart = expected.apart(rates)
    class_distance = ClassDistance(SAME_CLASS.family_pace + (FAMILY_PER_READING * apart) ** 2, SAME_CLASS.signals)
    likely = PER_READING * apart
    if not known:
        return Comparison(likely, 1.0, class_distance, likely) if expected.same_class else Comparison(0.0, 1.0, OTHER_CLASS)
    seconds = np.array([op.seconds for op in known])
    ratios = np.log(seconds) - expected.log_seconds([op.work() for op in known])
    pace = float(np.median(ratios))
    odd = pace - likely
    if not expected.same_class or abs(odd) > FAR_OFF or _unlike([op.family for op in known], ratios - pace):
        return Comparison(pace, 1.0, OTHER_CLASS)
    return Comparison(pace, _trust(odd, moments, PER_READING_DOUBT * apart), class_distance, likely)


def _unlike(families: Sequence[str], departures: Array) -> bool:
    """Whether the families' paces differ by more than neighbours make of one machine."""
    names = np.array(families)
    own = [departures[names == name] for name in dict.fromkeys(families)]
    paces = [abs(float(np.median(some))) for some in own if len(some) >= TELLING]
    return len(paces) > 1 and 1.48 * float(np.median(paces)) > UNLIKE


def _trust(odd: float, moments: int, doubt: float) -> float:
    """The share of what is odd about a machine's log pace in one minute that is believed to be there to stay.

    One machine has many paces: about its usual one it varies by the minute, and now and then neighbours keep it at
    another one for long. The further off, the likelier it is the latter (a mixture of two normal distributions).
    ``doubt`` is the standard deviation of what its reading let expect.
    """
    passing = MINUTE_SPREAD**2 * MOMENTS_PER_MINUTE / max(moments, 1)
    own, lasting_own = (spread**2 + doubt**2 for spread in (SAME_CLASS_SPREAD, REGIME_SPREAD))
    usual, regime = own + passing, lasting_own + passing
    passing_odds = (1.0 - REGIMES) / REGIMES * math.sqrt(regime / usual)
    lasting = 1.0 / (1.0 + passing_odds * math.exp(-0.5 * odd**2 * (1.0 / usual - 1.0 / regime)))
    return (1.0 - lasting) * own / usual + lasting * lasting_own / regime


def work_at(family: str, label: str, inputs: Sequence[float]) -> Work:
    """The op whose regression inputs these are: the inverse of ``costs.inputs_of`` and ``costs.op_label``."""
    name, _, dtype = label.rpartition(":")
    if name.endswith(":"):  # the double colon of a name without dtype
        name, dtype = label, "float32"
    name, _, _ = name.partition(VARIANT)  # the sizes tell
    sizes = len(FAMILIES[family].sizes) + len(CONTEXT_SIZES)
    # Back from its logarithm, a width of 64 is not quite that, and another number of vector registers is filled.
    flops, moved, *rest = (round(math.exp2(v) - 1.0, 6) for v in inputs[: 2 + sizes])
    return Work(family, name, dtype, flops, moved, tuple(rest), tuple(inputs[2 + sizes :]))
