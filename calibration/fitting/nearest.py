"""What is expected of a machine by one that was measured at length, and how the two differ over all.

A machine with neighbours is faster at one moment than at another, which lengthens all ops of a step alike. Each whole
step beside what is expected of it tells the pace of its moment, give or take the error of its price. The middle of
these paces is learnt, and how far one second's differs from another's is part of the interval: no prediction can be
closer than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placer import profile
from placer.calibration.fitting.adapt import NORMAL, OTHER_CLASS, SAME_CLASS, Prior
from placer.calibration.measuring.journal import OpObservation, StepObservation
from placer.pricing import CostModel
from placer.pricing.timeline import long_share
from placer.profile import SAME_CLASS_WITHIN, Device, Profile, dissimilarity

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Expectation:
    """What another machine's fit says of this one, and what its profile is called.

    ``same_class``: the other machine is of this one's class, and its times are expected to be those of this one.
    """

    fit: Device
    same_class: bool = False
    name: str = ""


def shipped_references() -> tuple[Profile, ...]:
    """The machines that were measured at length, and come with placer."""
    return tuple(map(profile.load, profile.shipped()))


def expectations(
    known: Sequence[Profile], device: str, threads: int, fingerprint: Mapping[str, Any]
) -> list[Expectation]:
    """What the profiles of the most similar machine say of a device; none where none knows such a device.

    Of this machine's own class it may be several, of a quiet and of a contended machine. Of others that are all equally
    dissimilar it is the newest.
    """
    current = [found for found in known if device in found.devices()]
    newest_first = sorted(current, key=attrgetter("created"), reverse=True)
    unlike = [dissimilarity(found.fingerprint, fingerprint, device) for found in newest_first]
    nearest = [found for found, off in zip(newest_first, unlike, strict=True) if off == min(unlike)]
    same_class = bool(unlike) and min(unlike) < SAME_CLASS_WITHIN
    return [
        Expectation(found.fit(device, threads), same_class, found.name)
        for found in (nearest if same_class else nearest[:1])
    ]


#: A pace of a moment is off by no more than this (a logarithm): what is, was disturbed.
MOST = 1.5
#: Fewer steps, or seconds, show nothing of moments.
LEAST = 12
#: The least logarithm of the factor on long steps that counts: a minute's steps tell it to 0.04 or 0.08.
LEAST_LONG = 0.15


@dataclass(frozen=True)
class Moments:
    """What all that is timed in one step shares. All but ``seconds`` are logarithms.

    ``pace``: the middle of what steps took over what was expected; None where it is not known. ``long_steps``: the
    factor by which other programs lengthen steps that are longer than their turns. ``spread``: the standard deviation
    of the pace of one second, of which so many ``seconds`` were seen.
    """

    pace: float | None = None
    long_steps: float = 0.0
    spread: float = 0.0
    seconds: float = 1.0


def moments_of(observations: Sequence[StepObservation], expected: Sequence[float], seconds_per_step: float) -> Moments:
    """The moments of steps that were timed in this order, beside the seconds that are ``expected`` of each."""
    off = np.log(np.maximum([step.seconds for step in observations], 1e-9) / np.array(expected))
    if len(off) < LEAST:
        return Moments()
    shares = np.array([long_share(seconds) for seconds in expected])
    long_steps = slope(shares, off)
    long_steps = long_steps if long_steps >= LEAST_LONG else 0.0
    off -= long_steps * shares
    pace = float(np.median(off))
    off = np.clip(off - pace, -MOST, MOST)
    size = max(round(1.0 / seconds_per_step), 2)
    seconds = [off[start : start + size] for start in range(0, len(off) - size + 1, size)]
    spread = 0.0
    if len(seconds) >= LEAST:
        between = np.var([np.mean(one) for one in seconds], ddof=1)
        within = np.mean([np.var(one, ddof=1) for one in seconds])
        spread = math.sqrt(max(between - within / size, 0.0))
    return Moments(pace, long_steps, spread, max(len(off) * seconds_per_step, 1.0))


def slope(shares: Array, off: Array) -> float:
    """How much more ``off`` is where the share is 1 than where it is 0: the line of least absolute deviations.

    Not below 0.0, and not above ``MOST``.
    """
    slopes = np.linspace(0.0, MOST, 151)
    rest = off[:, None] - shares[:, None] * slopes[None, :]
    return float(slopes[np.abs(rest - np.median(rest, axis=0)).sum(axis=0).argmin()])


def shortened(step: StepObservation, factor: float) -> StepObservation:
    """A step, and all in it, ``factor`` times as long."""
    ops = tuple(
        replace(op, seconds=None if op.seconds is None else factor * op.seconds, host_seconds=factor * op.host_seconds)
        for op in step.ops
    )
    gaps = {phase: factor * seconds for phase, seconds in step.gaps.items()}
    return replace(step, seconds=factor * step.seconds, ops=ops, gaps=gaps)


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
    to last. ``prior`` says how far its ops may differ from that.
    """

    pace: float
    believed: float
    prior: Prior

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
    known = [op for op in ops if op.family in expected.fit.families]
    if not known:
        return Comparison(0.0, 0.0, SAME_CLASS if expected.same_class else OTHER_CLASS)
    seconds, _, _ = CostModel(expected.fit).price_works([op.work() for op in known])
    ratios = np.log([op.seconds or 0.0 for op in known]) - np.log(seconds)
    pace = float(np.median(ratios))
    if not expected.same_class or abs(pace) > FAR_OFF or _unlike([op.family for op in known], ratios - pace):
        return Comparison(pace, pace, OTHER_CLASS)
    family = math.hypot(SAME_CLASS.family, FAMILY_PER_PACE * pace)
    of_steps = pace if moments.pace is None else moments.pace
    return Comparison(pace, lasting(of_steps, steps, moments) * of_steps, SAME_CLASS._replace(family=family))


def _unlike(families: Sequence[str], ratios: Array) -> bool:
    """Whether families' paces (``ratios``: logs by op, about the median) differ by more than contention explains."""
    names = np.array(families)
    by_family = [ratios[names == name] for name in dict.fromkeys(families)]
    paces = [abs(float(np.median(own))) for own in by_family if len(own) >= SHOWING]
    return len(paces) > 1 and NORMAL * float(np.median(paces)) > UNLIKE


def lasting(pace: float, steps: int, moments: Moments) -> float:
    """The share of a log pace, measured in one minute, that is believed to last.

    A machine's pace is normal about that of its class, with a small variance as a rule, and with a large one in times
    of contention that last (a mixture). What a minute shows of it has the variance of the minute besides. Given the
    pace that was seen, each of the two says which share lasts (variance of what lasts / variance in all), and counts by
    how likely it is.
    """
    of_minute = MINUTE_SPREAD**2 * MOMENTS_PER_MINUTE / max(steps, 1) + moments.spread**2 / moments.seconds
    as_a_rule, contended = (spread**2 + moments.spread**2 for spread in (SAME_CLASS_SPREAD, REGIME_SPREAD))
    seen_as_a_rule, seen_contended = as_a_rule + of_minute, contended + of_minute
    odds = (1.0 - REGIMES) / REGIMES * math.sqrt(seen_contended / seen_as_a_rule)
    odds *= math.exp(-0.5 * pace**2 * (1.0 / seen_as_a_rule - 1.0 / seen_contended))
    likely = 1.0 / (1.0 + odds)
    return (1.0 - likely) * as_a_rule / seen_as_a_rule + likely * contended / seen_contended
