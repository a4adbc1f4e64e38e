"""How this machine differs from another over all ops: by what factor, how much of it lasts, and whether in class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placer.calibration.fitting.difference import OTHER_CLASS, SAME_CLASS, DifferencePrior
from placer.calibration.fitting.expectation import Expectation
from placer.calibration.measuring.observation import OpObservation

Array = NDArray[np.float64]

#: Log of the pace per log of the reading, and its standard deviation. Where other programs made readings 1.6 times as
#: long, ops of an AMD machine took 1.61 times as long; where they made them 1.4 times as long, an Intel machine's took
#: 1.5 times.
PER_READING, PER_READING_DOUBT = 1.1, 0.5
#: Standard deviation of the log of the families' own paces, per log of the reading: other programs slow views down half
#: as much again as convolutions.
FAMILY_PER_READING = 0.3
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

    ``pace`` is the log of its times over the other's, ``likely`` what their readings alone make of that, and ``trust``
    the share of what is left of the pace that is believed to last.
    """

    pace: float
    trust: float
    prior: DifferencePrior
    likely: float = 0.0

    @property
    def same_class(self) -> bool:
        """Whether the two are of one class."""
        return self.prior != OTHER_CLASS

    @property
    def believed(self) -> float:
        """The log of the pace that is expected to last."""
        return self.likely + self.trust * (self.pace - self.likely)


def compare(
    ops: Sequence[OpObservation], expected: Expectation, moments: int, rates: Mapping[str, float]
) -> Comparison:
    """The comparison over all ops that the other machine knows; ``moments`` is the number of steps they come from.

    ``rates`` are the device's own; of them its usual reading counts. Where the other is of the same class, and was
    measured for longer, a small difference that the readings do not explain is mostly one of the minute; a large one
    lasts. Where every family differs in its own way, the two are not of one class.
    """
    known = [op for op in ops if op.family in expected.families]
    log_ratio = expected.log_reading_ratio(rates)
    prior = DifferencePrior(SAME_CLASS.family_pace + (FAMILY_PER_READING * log_ratio) ** 2, SAME_CLASS.signals)
    likely = PER_READING * log_ratio
    if not known:
        return Comparison(likely, 1.0, prior, likely) if expected.same_class else Comparison(0.0, 1.0, OTHER_CLASS)
    seconds = np.array([op.seconds for op in known])
    ratios = np.log(seconds) - expected.log_seconds([op.work() for op in known])
    pace = float(np.median(ratios))
    unexplained = pace - likely
    if not expected.same_class or abs(unexplained) > FAR_OFF or _unlike([op.family for op in known], ratios - pace):
        return Comparison(pace, 1.0, OTHER_CLASS)
    return Comparison(pace, _trust(unexplained, moments, PER_READING_DOUBT * log_ratio), prior, likely)


def _unlike(families: Sequence[str], ratios: Array) -> bool:
    """Whether families' paces (``ratios``: logs by op, about the median) differ by more than contention explains."""
    names = np.array(families)
    by_family = [ratios[names == name] for name in dict.fromkeys(families)]
    paces = [abs(float(np.median(own))) for own in by_family if len(own) >= SHOWING]
    return len(paces) > 1 and 1.48 * float(np.median(paces)) > UNLIKE


def _trust(unexplained: float, moments: int, doubt: float) -> float:
    """The share of what the readings leave unexplained of a log pace, measured in one minute, that is believed to last.

    A machine's pace varies by the minute about its usual one, and now and then contention holds it at another one for
    long. The further off, the likelier it is the latter (a mixture of two normal distributions). ``doubt`` is the
    standard deviation of what the readings explain.
    """
    passing = MINUTE_SPREAD**2 * MOMENTS_PER_MINUTE / max(moments, 1)
    own, lasting_own = (spread**2 + doubt**2 for spread in (SAME_CLASS_SPREAD, REGIME_SPREAD))
    usual, regime = own + passing, lasting_own + passing
    passing_odds = (1.0 - REGIMES) / REGIMES * math.sqrt(regime / usual)
    lasting = 1.0 / (1.0 + passing_odds * math.exp(-0.5 * unexplained**2 * (1.0 / usual - 1.0 / regime)))
    return (1.0 - lasting) * own / usual + lasting * lasting_own / regime
