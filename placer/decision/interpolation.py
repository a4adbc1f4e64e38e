"""Predictions for shapes that lie between shapes that were traced: lengths that vary must not cost a trace each.

Only a trace tells what a step of another shape is made of. But a step on more data does no less, and what it does more
is bounded: where every input grows by a factor, an op's work grows by its square at most (the scores of attention). So
the time of a step between two that were traced lies between bounds, and so does the geometric mean weighted by size.
The interval is widened by what the bounds leave open. Where that is much, or where the two steps contradict it (other
ops, less time for more data), there is no answer, and the step is traced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from placer.decision.plan import Plan
from placer.pricing import Prediction, PricedTrace

#: The shapes of a question's tensors, in its order.
Sizes = tuple[tuple[int, ...], ...]
T = TypeVar("T")

#: Work grows at most with this power of the inputs' size.
POWER = 2.0
#: Steps of nearly equal size may come out slower or faster by this much: prices are not smooth.
UNEVEN = 0.01
#: What the bounds leave open may widen an interval by this share of its width, in logarithms.
SHARE = 0.5


def nearest_around(known: Mapping[Sizes, T], sizes: Sizes) -> tuple[T, T, float, float] | None:
    """What is known of the nearest sizes that are nowhere larger, of the nearest nowhere smaller, and how far they are.

    None without both.
    """
    below = above = None
    up = down = math.inf
    for other, value in known.items():
        if (distance := growth(other, sizes)) is not None:
            if distance < up:
                below, up = value, distance
        elif (distance := growth(sizes, other)) is not None and distance < down:
            above, down = value, distance
    return None if below is None or above is None else (below, above, up, down)


def growth(small: Sizes, large: Sizes) -> float | None:
    """Logarithm of the factor by which the tensor grows that grows most; None where a dimension shrinks or is 0."""
    most = 1.0
    for before, after in zip(small, large, strict=True):
        factor = 1.0
        for m, n in zip(before, after, strict=True):
            if not 0 < m <= n:
                return None
            factor *= n / m
        most = max(most, factor)
    return math.log(most)


def interpolate(below: Plan, above: Plan, up: float, down: float, steps: int | None) -> dict[str, Prediction] | None:
    """Predictions by device for a size that is ``up`` from ``below`` and ``down`` from ``above`` (see ``growth``).

    None where the two do not say enough: their steps are made of other ops, or lie too far apart.
    """
    if below.kinds != above.kinds or below.predictions.keys() != above.predictions.keys():
        return None
    result: dict[str, Prediction] = {}
    for name, small in below.predictions.items():
        found = _between(small, above.predictions[name], up, down, steps)
        if found is None:
            return None
        result[name] = found
    return result


def _between(small: Prediction, large: Prediction, up: float, down: float, steps: int | None) -> Prediction | None:
    if small.threads != large.threads or small.components.keys() != large.components.keys():
        return None
    gained = math.log(large.step_seconds / small.step_seconds)
    if not -UNEVEN <= gained <= POWER * (up + down) + UNEVEN:
        return None
    share = up / (up + down)
    here = gained * share
    # The least and the most that a time can have gained on the way here, if it never falls and never grows faster.
    least = max(min(gained, 0.0), gained - POWER * down) - UNEVEN
    most = min(max(gained, 0.0), POWER * up) + UNEVEN
    faster = max(math.log(p.step_seconds / p.low) for p in (small, large))
    slower = max(math.log(p.high / p.step_seconds) for p in (small, large))
    if here - least > SHARE * faster or most - here > SHARE * slower:
        return None
    seconds = small.step_seconds * math.exp(here)
    components = {
        part: seconds * ((1 - share) * value / small.step_seconds + share * large.components[part] / large.step_seconds)
        for part, value in small.components.items()
    }
    first = max(large, small, key=lambda p: p.one_time_seconds)
    once = first.one_time_seconds
    return replace(
        large,
        step_seconds=seconds,
        low=seconds * math.exp(least - here - faster),
        high=seconds * math.exp(most - here + slower),
        one_time_seconds=once,
        one_time=first.one_time,
        total_seconds=None if steps is None else once + steps * seconds,
        components=components,
        # Memory is never interpolated: what does not fit must not come out as fitting.
        peak_memory_bytes=max(small.peak_memory_bytes, large.peak_memory_bytes),
        fits=small.fits and large.fits,
        coverage=min(small.coverage, large.coverage),
        priced=_scaled(large.priced, components["compute"]),
        interpolated=True,
    )


def _scaled(priced: PricedTrace, compute: float) -> PricedTrace:
    """The ops of the larger step, in the time that is left of them."""
    total = sum(priced.seconds)
    factor = compute / total if total else 0.0
    return replace(priced, seconds=tuple([factor * seconds for seconds in priced.seconds]))
