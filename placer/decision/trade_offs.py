"""What each device gives for what it costs: the Pareto set of time, money and energy, and a line on every trade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Differences below this share are none: predictions are not that exact.
SAME = 0.02


@dataclass(frozen=True)
class Point:
    """One way to run a workload: its seconds, dollars and joules; None where the last two are not known."""

    name: str
    seconds: float
    dollars: float | None = None
    joules: float | None = None

    @property
    def values(self) -> tuple[float | None, ...]:
        return self.seconds, self.dollars, self.joules


def pareto(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points that no other one betters in something without being worse in anything else, in the order given.

    Differences below 2 % are none. Another one betters a point only where all is known of it that is known of the
    point.
    """
    return tuple(point for point in points if not any(_betters(other, point) for other in points))


def _betters(other: Point, point: Point) -> bool:
    pairs = [(theirs, own) for theirs, own in zip(other.values, point.values, strict=True) if own is not None]
    if any(theirs is None or theirs > own * (1.0 + SAME) for theirs, own in pairs):
        return False
    return any(theirs is not None and theirs < own * (1.0 - SAME) for theirs, own in pairs)


def trade(other: Point, chosen: Point) -> str:
    """What ``other`` gives for what it costs beside ``chosen``: ``17% faster for 5.0× the money``; "" for neither."""
    faster = chosen.seconds / other.seconds - 1.0 if other.seconds else 0.0
    costs, saves = [], []
    for what, a, b in (("money", other.dollars, chosen.dollars), ("energy", other.joules, chosen.joules)):
        if a is None or b is None or not a or not b:
            continue
        if a > b * (1.0 + SAME):
            costs.append(f"{a / b:.1f}× the {what}" if a >= 1.095 * b else f"{a / b - 1.0:.0%} more {what}")
        elif a < b * (1.0 - SAME):
            saves.append(f"{1.0 - a / b:.0%} less {what}")
    if faster > SAME:
        gain = f"{faster:.0%} faster" if faster < 1.0 else f"{1.0 + faster:.1f}× as fast"
        saves.insert(0, gain)
    elif faster < -SAME:
        costs.insert(0, f"{1.0 / (1.0 + faster):.1f}× the time" if faster < -0.087 else f"{-faster:.0%} more time")
    gains, prices = " and ".join(saves), " and ".join(costs)
    if gains and prices:
        return f"{gains} for {prices}"
    return gains or prices
