"""What all that is timed in one step shares: other programs that take turns with it, and the speed of the moment.

A machine with neighbours is faster at one moment than at another, which lengthens all ops of a step alike. Each whole
step beside what is expected of it tells the pace of its moment, give or take the error of its price. The middle of
these paces is learnt, and how far one second's differs from another's is part of the interval: no prediction can be
closer than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placer.calibration.measuring.journal import StepObservation
from placer.pricing import long_share

Array = NDArray[np.float64]

#: A pace is off by no more than this (a logarithm): what is, was disturbed.
MOST = 1.5
#: Fewer steps, or seconds, show nothing.
LEAST = 12
#: The least logarithm of the factor on long steps that counts: a minute's steps tell it to 0.04 or 0.08.
LEAST_LONG = 0.15


@dataclass(frozen=True)
class Moments:
    """What steps share. All but ``seconds`` are logarithms.

    ``pace``: the middle of what steps took over what was expected; None where it is not known. ``long_steps``: the
    factor by which other programs lengthen steps that are longer than their turns. ``spread``: the standard deviation
    of the pace of one second, of which so many ``seconds`` were seen.
    """

    pace: float | None = None
    long_steps: float = 0.0
    spread: float = 0.0
    seconds: float = 1.0


def moments_of(
    observations: Sequence[StepObservation], predict: Callable[[StepObservation], float], seconds_per_step: float
) -> Moments:
    """The moments of steps that were timed in this order, beside what ``predict`` expects of each."""
    expected = np.array([predict(step) for step in observations])
    off = np.log(np.maximum([step.seconds for step in observations], 1e-9) / expected)
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


def at_middle(
    observations: Sequence[StepObservation], predict: Callable[[StepObservation], float], moments: Moments
) -> list[StepObservation]:
    """The steps, and all in them, as long as they would have been if no other program had taken turns with them."""
    if moments.long_steps == 0.0:
        return list(observations)
    return [_scaled(step, math.exp(-moments.long_steps * long_share(predict(step)))) for step in observations]


def _scaled(step: StepObservation, factor: float) -> StepObservation:
    ops = tuple(
        replace(op, seconds=None if op.seconds is None else factor * op.seconds, host_seconds=factor * op.host_seconds)
        for op in step.ops
    )
    gaps = {phase: factor * seconds for phase, seconds in step.gaps.items()}
    return replace(step, seconds=factor * step.seconds, ops=ops, gaps=gaps)
